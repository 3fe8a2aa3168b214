"""D2LLM's figure 2: what a question costs a bi-encoder, the student with its interaction module, and the judge, split in three.

    python bench/d2llm_runtime.py --student runs/d2llm/export --judge MODEL.gguf --pairs qnli_dev.jsonl [--passages 100] [--rounds 5]

Encoding the query, scoring the passages (whose vectors are there already; the judge has none and reads each pair), ranking. A query at a
time, the same queries and passages for all; medians over queries and alternating rounds, compiling left out. The bi-encoder is the
student by its cosines, so that one encoding is timed for both. Prints shares and ratios; --picture draws them. Adds to
bench/results/d2llm_runtime.json.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import numpy as np
from bars import draw_bars
from record import command_line, keep_rows, shown, shown_run

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.data.sets.pairs import read_pairs
from jdistill.encoder.pair_scorer import load_pair_scorer
from jdistill.retrieval import index
from jdistill.teachers.judge import ASYMMETRIC, load_judge

PARTS = ("encoding", "scoring", "ranking")
Scores = Callable[[str, np.ndarray], np.ndarray]  # a question and its vector [1, D] -> scores of the passages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("student", "judge", "pairs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--queries", type=int, default=8)
    parser.add_argument("--passages", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--dtype", default="bfloat16", choices=("float32", "bfloat16"), help="of the judge and the student"
    )
    parser.add_argument("--picture", type=Path, default=Path("runs/d2llm-runtime.png"))
    flags = parser.parse_args()
    keep_compiled_programs()
    scorer, judge = load_pair_scorer(flags.student), load_judge(flags.judge, template=ASYMMETRIC)
    judge = replace(judge, model=replace(judge.model, dtype=flags.dtype))
    scorer = replace(scorer, encoder=replace(scorer.encoder, dtype=flags.dtype))
    pairs, model = read_pairs(flags.pairs, "pairs"), scorer.encoder
    queries = list(dict.fromkeys(pairs.queries))[: flags.queries]
    passages = list(dict.fromkeys(pairs.passages))[: flags.passages]
    vectors = model.encode(passages, prompt=model.prompt_for("document"))
    units = index.unit_rows(vectors)

    ways: dict[str, Scores] = {
        "bi-encoder": lambda _, vector: units @ index.unit_rows(vector)[0],
        "student": lambda _, vector: scorer.every(vector, vectors)[0],
        "judge": lambda query, _: judge.score([query] * len(passages), passages)[0],
    }
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for round_ in range(flags.rounds + 1):
        for query in queries:
            begun = time.perf_counter()
            vector = model.encode([query], prompt=model.prompt_for("query"))
            encoding = time.perf_counter() - begun  # the student's and the bi-encoder's is one
            for name, scoring in ways.items():
                times = [time.perf_counter()]
                scores = scoring(query, vector)
                times.append(time.perf_counter())
                np.argsort(-scores, kind="stable")
                times.append(time.perf_counter())
                if round_:
                    apart = (after - before for before, after in itertools.pairwise(times))
                    taken[name].append((0.0 if name == "judge" else encoding, *apart))
    medians = {name: [statistics.median(part) for part in zip(*each, strict=True)] for name, each in taken.items()}
    base = sum(medians["bi-encoder"])
    print("| | " + " | ".join(PARTS) + " | whole, of the bi-encoder's |\n| --- | --- | --- | --- | --- |")
    for name, parts in medians.items():
        shares = " | ".join(f"{100 * part / sum(parts):.1f} %" for part in parts)
        print(f"| {name} | {shares} | {sum(parts) / base:.2f} |")
    rows = [
        {"by": name}
        | {f"{what} (ms)": 1000 * part for what, part in zip(PARTS, parts, strict=True)}
        | {"bi-encoder = 1": sum(parts) / base}
        for name, parts in medians.items()
    ]
    about = {
        "student": shown_run(flags.student),
        "judge": shown(flags.judge),
        "file": shown(flags.pairs),
        "passages": len(passages),
        "dtype": flags.dtype,
    }
    keep_rows("d2llm_runtime", command_line(), rows, ("by",), **about)
    bars = {
        name: {what: [part / base] for what, part in zip(PARTS, parts, strict=True)} for name, parts in medians.items()
    }
    draw_bars(flags.picture, bars, "time of a question, the bi-encoder's whole being one")


if __name__ == "__main__":
    main()
