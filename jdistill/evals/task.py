"""A classifier on the splits of its task."""

from __future__ import annotations

from typing import Any

from jdistill.data.sets.tasks import Split, Task
from jdistill.encoder.classifier import Classifier
from jdistill.encoder.encoder import Encoder
from jdistill.evals.classify import classification_scores


def task_scores(task: Task, student: Encoder, head: dict[str, Any], rows: Split) -> dict[str, float]:
    """The task's metrics on some of its rows, in percent."""
    model = Classifier(student, head, task.labels, task.pairs)
    return classification_scores(rows.labels, model.logits(rows.texts, rows.others).argmax(1), task.metrics)


def task_results(task: Task, student: Encoder, head: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The task's name -> its metrics on test, or on dev where there is no test, with "split", which of them that is, "dev", the metrics
    there, and "rows" of each split; NAME-mm -> the same of MNLI's mismatched rows."""
    dev = task_scores(task, student, head, task.dev)
    test = task_scores(task, student, head, task.test) if task.test else dev
    rows = {"train": len(task.train), "dev": len(task.dev)} | ({"test": len(task.test)} if task.test else {})
    results: dict[str, dict[str, Any]] = {}
    results[task.name] = test | {"split": "test" if task.test else "dev", "dev": dev, "rows": rows}
    if task.other_dev is not None:
        other = task_scores(task, student, head, task.other_dev)
        results[f"{task.name}-mm"] = other | {"split": "dev", "dev": other, "rows": rows | {"dev": len(task.other_dev)}}
    return results
