"""The STS table of an exported folder by sentence-transformers alone, in a process that cannot import jdistill.

    python bench/sts_by_sentence_transformers.py --model FOLDER --senteval SENTEVAL [--expect results.json]

Reads SentEval's files by itself, so that it checks jdistill's reading too. --expect: a results.json of
jdistill.evaluate; exits with status 1 if a figure differs by more than 0.02. Adds to
bench/results/sts_by_sentence_transformers.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

sys.modules["jdistill"] = None  # type: ignore[assignment]  # from here on, importing it raises ImportError

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R")


def pairs(senteval: Path, task: str) -> tuple[list[str], list[str], list[float]]:
    """Both sides and the gold score of a task's test pairs, all subsets in one list."""
    first: list[str] = []
    second: list[str] = []
    gold: list[float] = []

    def add(a: str, b: str, score: str) -> None:
        first.append(a.strip())
        second.append(b.strip())
        gold.append(float(score))

    if task == "STS-B":
        for line in (senteval / "STS/STSBenchmark/sts-test.csv").read_text(encoding="utf-8").splitlines():
            fields = line.split("\t")
            add(fields[5], fields[6], fields[4])
    elif task == "SICK-R":
        for line in (senteval / "SICK/SICK_test_annotated.txt").read_text(encoding="utf-8").splitlines()[1:]:
            fields = line.split("\t")
            add(fields[1], fields[2], fields[3])
    else:
        for inputs in sorted((senteval / "STS" / f"{task}-en-test").glob("STS.input.*.txt")):
            scores = inputs.with_name(inputs.name.replace("STS.input", "STS.gs")).read_text().split("\n")
            for line, score in zip(inputs.read_text(encoding="utf-8").split("\n"), scores, strict=False):
                if score.strip():  # pairs that were never scored do not count
                    a, b = line.split("\t")[:2]
                    add(a, b, score)
    return first, second, gold


def keep(model: str, figures: dict[str, float]) -> None:
    """Adds the row to the results' file, by jdistill's own means: the figures are there."""
    del sys.modules["jdistill"]
    from record import command_line, keep_rows, shown

    keep_rows("sts_by_sentence_transformers", command_line(), [{"model": shown(model)} | figures], ("model",))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--senteval", type=Path, required=True)
    parser.add_argument("--expect", type=Path)
    flags = parser.parse_args()
    model = SentenceTransformer(flags.model, device="cpu")
    expected = json.loads(flags.expect.read_text())["sts"] if flags.expect else {}
    figures: dict[str, float] = {}
    for task in TASKS:
        first, second, gold = pairs(flags.senteval, task)
        a, b = (np.asarray(model.encode(side, batch_size=64, normalize_embeddings=True)) for side in (first, second))
        figures[task] = 100 * spearmanr((a * b).sum(1), gold).statistic
        print(
            f"{task:8} {figures[task]:6.2f}   {len(gold):5d} pairs   jdistill {expected.get(task, float('nan')):6.2f}",
            flush=True,
        )
    figures["Avg"] = float(np.mean([figures[task] for task in TASKS]))
    print(f"Avg      {figures['Avg']:6.2f}")
    off = {task: figures[task] - expected[task] for task in expected if abs(figures[task] - expected[task]) > 0.02}
    keep(flags.model, figures)
    print("differs: " + str(off) if off else "all within 0.02" if expected else "")
    return 1 if off else 0


if __name__ == "__main__":
    raise SystemExit(main())
