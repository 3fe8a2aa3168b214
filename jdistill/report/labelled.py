"""The report's part on labels: a task's metrics, and labelled pairs as the student and its judge tell them apart."""

from __future__ import annotations

from typing import Any

from jdistill.report.page import Page, num, real

PAIR_MEASURES = ("accuracy", "f1", "ap", "precision", "recall")


def labelled(page: Page, found: dict[str, Any]) -> None:
    """A section for results.json's "task" and one for its "pairs", where the run has them; what is not a number shows as a dash."""
    tasks, files = (found[key] if isinstance(found.get(key), dict) else {} for key in ("task", "pairs"))
    rows = []
    for name, figures in tasks.items():
        if isinstance(figures, dict):
            sides = {"dev": figures.get("dev"), str(figures.get("split", "test")): figures}
            rows += [
                [name, side, metric, num(value, 2)]
                for side, values in sides.items()
                if isinstance(values, dict)
                for metric, value in values.items()
                if real(value) is not None
            ]
    if rows:
        page.put("h2", "Task")
        page.table("In percent", ["Task", "Split", "Measure", "Value"], rows, words=(1, 2))
    rows = [
        [name, row, *(num(figures.get(measure), 2) for measure in (*PAIR_MEASURES, "prior"))]
        for name, of_file in files.items()
        if isinstance(of_file, dict)
        for row, figures in of_file.items()
        if isinstance(figures, dict)
    ]
    if rows:
        page.put("h2", "Labelled pairs")
        page.table(
            "In percent; average precision stands beside its floor, the share of positives",
            ["File", "Scored by", "Accuracy", "F1", "Average precision", "Precision", "Recall", "Positives"],
            rows,
            words=(1,),
        )
    questions = found.get("questions") if isinstance(found.get("questions"), dict) else {}
    rows = [
        [name, how, *(num(figures.get(measure), 3) for measure in ("ndcg@10", "mrr@10", "recall@10"))]
        for name, of_file in (questions or {}).items()
        if isinstance(of_file, dict)
        for how, figures in of_file.items()
        if isinstance(figures, dict)
    ]
    if rows:
        page.table(
            "Each held-out question looks for its passages among all of its file's",
            ["File", "Ranked by", "nDCG@10", "MRR@10", "Recall@10"],
            rows,
            words=(1,),
        )
