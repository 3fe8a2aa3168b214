"""The tables of a run on labels: a task's metrics, labelled pairs as student and judge tell them apart, held-out questions and translations."""

from __future__ import annotations

from typing import Any

from jdistill.report.facts import objects
from jdistill.report.tables import Table, num, real

PAIR_MEASURES = ("accuracy", "f1", "ap", "precision", "recall")
QUESTION_MEASURES = ("ndcg@10", "mrr@10", "recall@10")


def labelled_tables(results: dict[str, Any]) -> dict[str, Table]:
    """Title -> table of the "task", the "pairs", the "questions" and the "translations" in results.json; without rows where the run has none."""
    return {
        "Task": task_table(objects(results.get("task"))),
        "Labelled pairs": pairs_table(objects(results.get("pairs"))),
        "Held-out questions": questions_table(objects(results.get("questions"))),
        "Held-out translations": translations_table(objects(results.get("translations"))),
    }


def task_table(tasks: dict[str, dict[str, Any]]) -> Table:
    """A row for each number of a task, of its dev split and of its test split."""
    rows = []
    for name, figures in tasks.items():
        sides = {"dev": figures.get("dev"), str(figures.get("split", "test")): figures}
        rows += [
            [name, side, metric, num(value, 2)]
            for side, values in objects(sides).items()
            for metric, value in values.items()
            if real(value) is not None
        ]
    return Table("In percent", ["Task", "Split", "Measure", "Value"], rows, text_columns=(1, 2))


def pairs_table(files: dict[str, dict[str, Any]]) -> Table:
    """A row for the student and one for its judge, of each file of pairs."""
    rows = [
        [name, scorer, *(num(figures.get(measure), 2) for measure in (*PAIR_MEASURES, "prior"))]
        for name, scorers in files.items()
        for scorer, figures in objects(scorers).items()
    ]
    return Table(
        "In percent; average precision stands beside the share of positives, which a random order has on average",
        ["File", "Scored by", "Accuracy", "F1", "Average precision", "Precision", "Recall", "Positives"],
        rows,
        text_columns=(1,),
    )


def questions_table(files: dict[str, dict[str, Any]]) -> Table:
    """A row for each way to rank passages, of each file of questions."""
    rows = [
        [name, ranking, *(num(figures.get(measure), 3) for measure in QUESTION_MEASURES)]
        for name, rankings in files.items()
        for ranking, figures in objects(rankings).items()
    ]
    return Table(
        "Each held-out question looks for its passages among those of all pairs that this run uses",
        ["File", "Ranked by", "nDCG@10", "MRR@10", "Recall@10"],
        rows,
        text_columns=(1,),
    )


def translations_table(languages: dict[str, dict[str, Any]]) -> Table:
    """A row for each language of the held-out pairs of parallel text."""
    rows = [
        [
            name,
            num(figures.get("pairs"), 0),
            num(figures.get("mean_cosine"), 4),
            num(figures.get("spearman"), 2),
            num(figures.get("source_to_translation"), 1, unit=" %"),
            num(figures.get("translation_to_source"), 1, unit=" %"),
        ]
        for name, figures in languages.items()
    ]
    return Table(
        "The student's vectors of translations beside the teacher's of their sources, and how many texts are nearest to their own "
        "counterpart by the student",
        ["Language", "Pairs", "Mean cosine", "Spearman", "Source finds translation", "Translation finds source"],
        rows,
    )
