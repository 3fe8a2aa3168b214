"""Markdown that a model card is made of: names of others shown letter by letter, and its tables of figures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jdistill.core.printable import printable, without_secrets
from jdistill.report.beside import model_beside
from jdistill.report.facts import objects, of_dev_pairs, scored_pairs, searched_by
from jdistill.report.labelled import questions_table, task_table
from jdistill.report.tables import Table, num, real, retention

AGREEMENT = {
    "mean_cosine": "mean cosine",
    "constant_cosine": "the same of the best constant vector",
    "spearman": "Spearman of pair cosines x 100",
    "pearson": "Pearson of pair cosines x 100",
    "top10_overlap": "overlap of the ten nearest, %",
}

# Columns beside a search by this model, and the key of results.json that each is read from.
BESIDE_RETRIEVAL = {
    "{other}": "teacher_retrieval",
    "its queries, {the_other}'s index": "asymmetric_retrieval",
    "ranked anew by its module": "retrieval_rescored",
    "BM25": "bm25_retrieval",
}


def plain(text: str) -> str:
    """A name of somebody else's as Markdown that shows it letter by letter, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|!~&])", r"\\\1", printable(text))


def code_span(text: str) -> str:
    """The same as code, fenced by more backticks than it holds in a row."""
    shown = printable(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    space = " " if "`" in shown else ""
    return f"{fence}{space}{shown}{space}{fence}"


def markdown_table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table of Markdown. Its cells are Markdown themselves: a name of somebody else's goes through plain() first."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def figure_sections(results: dict[str, Any], config: dict[str, Any]) -> str:
    """The sections of a card that say what its run measured, from results.json and config.json; empty where it measured nothing."""
    other = "its start" if model_beside(config.get("teacher")) == "start" else "teacher"
    sections = [
        *([("Warning", f"{plain(without_secrets(str(results['warning'])))}\n")] if results.get("warning") else []),
        *_spearman("Semantic textual similarity", lambda whose: results.get(f"{whose}sts", {}), other),
        *_spearman("Dev pairs", lambda whose: scored_pairs(results, whose), other),
        *_retrieval(results, other),
        *_index(results),
        *_pairs(results),
        *_as_on_the_page("Classification, by head.safetensors", task_table(objects(results.get("task")))),
        *_as_on_the_page("Held-out questions", questions_table(objects(results.get("questions")))),
        *_agreement(results, _with_article(other)),
        *_translations(results),
        *_training(results),
    ]
    return "".join(f"\n## {title}\n\n{text}" for title, text in sections)


def _with_article(other: str) -> str:
    return "the teacher" if other == "teacher" else other


def _spearman(title: str, figures: Callable[[str], dict[str, Any]], other: str) -> Iterator[tuple[str, str]]:
    """Title and text of a section on pairs of sentences by set, where there is one; so with those below.

    figures: "" for the student's, "teacher_" and "words_" -> Spearman x 100 by set.
    """
    student, teacher, words = map(figures, ("", "teacher_", "words_"))
    rows = [
        [
            plain(task),
            f"{value:.2f}",
            f"{teacher[task]:.2f}",
            "" if (share := retention(value, teacher[task])) is None else f"{share:.1f} %",
        ]
        if task in teacher
        else [plain(task), f"{value:.2f}", "", ""]
        for task, value in student.items()
    ]
    if words:
        rows = [[*row, f"{words[task]:.2f}" if task in words else ""] for row, task in zip(rows, student, strict=True)]
    if rows:
        head = ["task", "this model", other, "of it", *(["words alone"] if words else [])]
        yield f"{title} (Spearman x 100)", markdown_table(head, rows)


def _retrieval(results: dict[str, Any], other: str) -> Iterator[tuple[str, str]]:
    for name, scores in results.get("retrieval", {}).items():
        columns = {title: results.get(key, {}).get(name, {}) for title, key in BESIDE_RETRIEVAL.items()}
        beside = {
            title.format(other=other, the_other=_with_article(other)): figures
            for title, figures in columns.items()
            if figures
        }
        rows = [
            [plain(metric), f"{value:.4f}", *(f"{of[metric]:.4f}" if metric in of else "" for of in beside.values())]
            for metric, value in scores.items()
        ]
        yield (
            f"Retrieval: {plain(name)}{plain(searched_by(results))}",
            markdown_table(["metric", "this model", *beside], rows),
        )


def _index(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    owner = results.get("index", {})
    if owner.get("by") == "teacher":
        yield (
            "Search index",
            f"The run's own index holds vectors of the teacher, {code_span(without_secrets(str(owner['model'])))}; this model reads the questions.\n",
        )


def _pairs(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, scorers in results.get("pairs", {}).items():
        measures = ("accuracy", "ap", "precision", "recall")
        rows = [[plain(scorer), *(f"{of[measure]:.2f}" for measure in measures)] for scorer, of in scorers.items()]
        of_chance = f"{scorers['student']['prior']:.1f} % of them are positives, which is the average precision of a random order."
        head = ["", "accuracy", "average precision", "precision", "recall"]
        yield f"Labelled pairs: {plain(name)}", f"{of_chance}\n\n{markdown_table(head, rows)}"


def _as_on_the_page(title: str, table: Table) -> Iterator[tuple[str, str]]:
    if table.rows:
        rows = ([plain(cell) for cell in row] for row in table.rows)
        yield title, f"{table.caption}.\n\n{markdown_table(table.head, rows)}"


def _agreement(results: dict[str, Any], other: str) -> Iterator[tuple[str, str]]:
    figures = results.get("agreement", {})
    rows = [
        [label, f"{figures[key]:.{4 if key.endswith('_cosine') else 2}f}"]
        for key, label in AGREEMENT.items()
        if figures.get(key) is not None
    ]
    if rows:
        texts = real(figures.get("texts"))  # results from before they had it have none
        of = f"{texts:,.0f} held-out texts" if texts else "held-out text"
        yield f"Agreement with {other} on {of}", markdown_table(["figure", "value"], rows)


def _translations(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    rows = [
        [
            plain(language),
            str(of["pairs"]),
            f"{of['mean_cosine']:.4f}" if "mean_cosine" in of else "–",
            num(of.get("spearman")),
            f"{of['source_to_translation']:.1f}",
            f"{of['translation_to_source']:.1f}",
        ]
        for language, of in results.get("translations", {}).items()
    ]
    if rows:
        head = ["language", "pairs", "mean cosine", "Spearman x 100", "source finds translation, %", "the other way, %"]
        about = "Vectors of translations beside the teacher's of their sources; matching by the nearest of all held-out pairs of its language."
        yield "Held-out translations", f"{about}\n\n{markdown_table(head, rows)}"


def _training(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if training := results.get("training", {}):
        texts = training.get("texts")  # none where labelled rows alone were read
        of_texts = f" of {texts:,} distinct texts" if texts else ""
        removed = (
            f"; {training['removed_evaluation_texts']:,} texts of evaluation sets were removed first" if texts else ""
        )
        apart = f" {told}" if (told := of_dev_pairs(results)) else ""
        yield (
            "Training",
            f"{training['sentences']:,} sentences{of_texts} in {training['steps']:,} steps on {plain(training['devices'])}{removed}.{apart}\n",
        )
