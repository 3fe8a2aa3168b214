"""A judge's scores of pairs: batches by length beside one compiled call a pair, and beside generate in transformers, by pairs and batched.

    python bench/judge_speed.py --teacher MODEL.gguf --pairs snli_pairs.jsonl [--queries 4] [--candidates 13] [--rounds 3]

Each query with its own passage and those of the pairs that follow, as distilling asks for a query's positive, 8 hard negatives and
4 easy ones. The same pairs and prompts for all; medians of alternating rounds, compiling left out. torch and transformers read the
same weights, once exported. Prints pairs a second and the ratios (asked for: 2 and 5). Adds to bench/results/judge_speed.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import numpy as np
import torch
from record import command_line, keep_rows, shown
from transformers import AutoModelForCausalLM

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.data.sets.pairs import read_pairs
from jdistill.encoder.formats.st_writer import write_files, write_weights
from jdistill.teachers.judge import load_judge


def generated(model: Any, prompts: list[torch.Tensor], answers: tuple[int, int]) -> np.ndarray:
    """The logits of prompts by one call of generate, padded on the left: that of the first answer's token less the second's."""
    longest = max(map(len, prompts))
    ids = torch.zeros((len(prompts), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :], mask[row, longest - len(prompt) :] = prompt, 1
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=mask, max_new_tokens=1, do_sample=False, output_scores=True, return_dict_in_generate=True,
            pad_token_id=0,
        )  # fmt: skip
    yes, no = answers
    return (out.scores[0][:, yes] - out.scores[0][:, no]).float().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--pairs", required=True)
    parser.add_argument("--queries", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=13, help="passages that each query is judged with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--generate_batch", type=int, default=16, help="pairs a batched call of generate")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    flags = parser.parse_args()
    keep_compiled_programs()
    judge = load_judge(flags.teacher)
    judge = replace(judge, model=replace(judge.model, dtype=flags.dtype))
    pairs = read_pairs(flags.pairs, "pairs")
    firsts = [pairs.queries.index(query) for query in list(dict.fromkeys(pairs.queries))[: flags.queries]]
    queries = [pairs.queries[row] for row in firsts for _ in range(flags.candidates)]
    passages = [passage for row in firsts for passage in pairs.passages[row : row + flags.candidates]]
    with tempfile.TemporaryDirectory() as scratch:
        write_files(judge.model, Path(scratch))
        write_weights(judge.model, Path(scratch))
        theirs = AutoModelForCausalLM.from_pretrained(scratch, dtype=getattr(torch, flags.dtype)).eval()
    prompts = [torch.tensor(ids) for ids in judge.prompts(queries, passages)]
    found: dict[str, np.ndarray] = {}

    def batched() -> None:
        found["batched"] = judge.score(queries, passages)[0]

    def one_by_one() -> None:
        found["one by one"] = np.array([judge.score([q], [p])[0][0] for q, p in zip(queries, passages, strict=True)])

    def generate() -> None:
        found["generate"] = np.concatenate([generated(theirs, [ids], judge.answer_tokens) for ids in prompts])

    def generate_batched() -> None:
        by_length = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))  # so that little is padding
        found["generate, batched"] = np.empty(len(prompts), np.float32)
        for at in range(0, len(by_length), flags.generate_batch):
            rows = by_length[at : at + flags.generate_batch]
            found["generate, batched"][rows] = generated(theirs, [prompts[row] for row in rows], judge.answer_tokens)

    ways = {
        "batched": batched,
        "one by one": one_by_one,
        "generate": generate,
        "generate, batched": generate_batched,
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(flags.rounds + 1):
        for name, run in ways.items():
            began = time.perf_counter()
            run()
            if round_:
                seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    rows = []
    for name in ways:
        difference = np.abs(found[name] - found["batched"]).max()
        print(
            f"{name:<12}{len(queries) / medians[name]:8.2f} pairs/s, {medians[name] / medians['batched']:5.2f} times the batched time, "
            f"logits within {difference:.1e}"
        )
        rate = {
            "pairs_per_s": len(queries) / medians[name],
            "times the batched time": medians[name] / medians["batched"],
        }
        rows.append({"by": name} | rate | {"logits within": difference})
    about = {
        "teacher": shown(flags.teacher),
        "file": shown(flags.pairs),
        "pairs": len(queries),
        "candidates": flags.candidates,
        "dtype": flags.dtype,
        "generate_batch": flags.generate_batch,
    }
    keep_rows("judge_speed", command_line(), rows, ("by",), **about)


if __name__ == "__main__":
    main()
