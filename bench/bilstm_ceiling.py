"""What its teacher's vector could add to a student on a task: the vector itself, beside a student that nobody taught.

    python bench/bilstm_ceiling.py --runs runs/bilstm-table/scratch-1-0-1e-3 [runs/…] [--vectors MODEL …]

A run is one of configs/bilstm_sra_task.py, fine-tuned from scratch; the teacher its own, or each MODEL of --vectors. A logistic regression
is fitted to the teacher's frozen vectors of the run's own training rows, and its decision added to the classifier's with the weight that is
best on dev. A student that gives the teacher's vector exactly starts with what the regression knows, so what the sum gains over the
classifier alone estimates what approximating the vector can add. It is generous, since penalty and weight are chosen on the rows that are
counted, and it is no bound, since fine-tuning may find in the vector what no linear decision does. Two labels, single texts. Adds to
bench/results/bilstm_ceiling.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
from record import command_line, keep_rows, shown, shown_run

sys.path.insert(0, str(Path(__file__).parents[1]))

import jdistill
from jdistill.data.sets.tasks import read_task
from jdistill.encoder.classifier import load_classifier
from jdistill.evals.transfer import fit_regression

WEIGHTS = np.linspace(0, 4, 81)  # of a standard deviation of the classifier's own margins


def accuracy(margins_n: np.ndarray, labels_n: np.ndarray) -> float:
    return 100 * float(((margins_n > 0) == (labels_n == 1)).mean())


@cache
def of_vectors(vectors: str, rows: tuple[str, str, int, float]) -> np.ndarray:
    """The regression's margins on dev, float [n], in standard deviations. rows: read_task's arguments."""
    task, model = read_task(*rows), jdistill.load(vectors)
    train, dev = (model.encode(split.texts, batch_size=256) for split in (task.train, task.dev))
    regression, _ = fit_regression(train, task.train.labels, dev, task.dev.labels)
    margins: np.ndarray = regression.decision_function(dev)
    return margins / margins.std()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--vectors", nargs="+", default=[], help="models in the place of the runs' own teacher")
    flags = parser.parse_args()
    print("| run | labels | classifier | vectors | frozen | both | gain |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for run in flags.runs:
        cfg = json.loads((run / "config.json").read_text())
        rows = cfg["task"], cfg["task_dir"], cfg["split_seed"], cfg["label_fraction"]
        task = read_task(*rows)
        if task.pairs or len(task.labels) != 2:
            parser.error(f"{run}: {cfg['task']} is not a task of single texts with two labels")
        logits = load_classifier(str(run / "export")).logits(task.dev.texts)
        own = (logits[:, 1] - logits[:, 0]) / (logits[:, 1] - logits[:, 0]).std()
        for vectors in flags.vectors or [cfg["teacher"]]:
            others = of_vectors(vectors, rows)
            alone, frozen = accuracy(own, task.dev.labels), accuracy(others, task.dev.labels)
            both = max(accuracy(own + weight * others, task.dev.labels) for weight in WEIGHTS)
            row = {"run": shown_run(run), "labels": len(task.train), "classifier": alone, "vectors": shown(vectors)}
            row |= {"frozen": frozen, "both": both, "gain": both - alone}
            print(
                "| " + " | ".join(f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values()) + " |",
                flush=True,
            )
            keep_rows("bilstm_ceiling", command_line(), [row], ("run", "vectors"), task=cfg["task"])


if __name__ == "__main__":
    main()
