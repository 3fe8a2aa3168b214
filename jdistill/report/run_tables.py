"""The tables of a run's page, from results.json: summary, training, scores beside the teacher's, agreement, latency.

other: what the model beside the student is called, as report.beside has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jdistill.core.printable import without_secrets
from jdistill.core.progress import clock
from jdistill.report.facts import objects
from jdistill.report.tables import COSTS, Table, num, real, retention

APART = 4 / 3  # so many times one ratio of two speeds, from which the other is told too


def headline_sentence(results: dict[str, dict[str, Any]], speed: list[dict[str, Any]], other: str) -> str:
    """The one sentence that says the result, as far as it was measured."""
    student, teacher = results["student"], results["teacher"]
    params, theirs = student.get("num_params"), teacher.get("num_params")
    sts, teacher_sts = results["sts"].get("Avg"), results["teacher_sts"].get("Avg")
    said = []
    if real(params) is not None:
        said.append(f"has {num(params, 0)} parameters{_beside(params, theirs, 0, other)}")
    if real(sts) is not None:
        said.append(f"scores {num(sts)} on average on STS{_beside(sts, teacher_sts, 2, other)}")
    faster = ", ".join(
        f"{times_as_fast(row)} ({row.get('framework', '–')})"
        for row in compared_rows(speed)
        if row.get("model") == student.get("name") and real(row.get("ratio")) is not None
    )
    if faster:
        said.append(f"is {faster} times as fast")
    if not said:
        return "This run has no result yet."
    text = " and ".join(filter(None, [", ".join(said[:-1]), said[-1]]))
    name = student.get("name", "student")
    return f"{'The student' if name == 'student' else name} {text}."


def times_as_fast(row: dict[str, Any]) -> str:
    """The ratio of a row of speeds; where that of whole passes over the texts lies a third apart, as on a busy machine or by longer texts,
    both."""
    by_text, by_pass = row["ratio"], real(row.get("pass_ratio"))
    if by_pass is None or min(by_text, by_pass) <= 0 or max(by_text, by_pass) < APART * min(by_text, by_pass):
        return num(by_text)
    return f"{num(min(by_text, by_pass))} to {num(max(by_text, by_pass))}"


def compared_rows(speed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, without the ratio of a framework's only model, which is one to itself."""
    models = Counter(str(row.get("framework")) for row in speed)
    return [row if models[str(row.get("framework"))] > 1 else row | {"ratio": None} for row in speed]


def _beside(student: Any, teacher: Any, decimals: int, other: str) -> str:
    """How much of its teacher's figure the student has, in brackets; empty where that cannot be said."""
    share = retention(student, teacher)
    return "" if share is None else f" ({num(share, 1)} % of its {other}'s {num(teacher, decimals)})"


def summary_table(results: dict[str, dict[str, Any]], other: str, source: str) -> Table:
    """Size and average score of teacher and student. source: what the config calls the teacher, where the results do not name it."""
    student, teacher = results["student"], results["teacher"]
    compared = [
        ("Parameters", teacher.get("num_params"), student.get("num_params"), 0, 1.0, ""),
        ("Size in float32", teacher.get("bytes"), student.get("bytes"), 1, 1e-6, " MB"),
        ("STS average", results["teacher_sts"].get("Avg"), results["sts"].get("Avg"), 2, 1.0, ""),
        ("Tokens that its vocabulary lacks", None, student.get("unknown_tokens"), 2, 1.0, " %"),
    ]
    rows = [
        [
            name,
            num(theirs, decimals, scale, unit),
            num(mine, decimals, scale, unit),
            num(retention(mine, theirs), 1, unit=" %"),
        ]
        for name, theirs, mine, decimals, scale, unit in compared
        if real(theirs) is not None or real(mine) is not None
    ]
    return Table(
        without_secrets(
            f"{other.capitalize()}: {teacher.get('name') or source or 'unnamed'}. Student: {student.get('name', 'unnamed')}."
        ),
        ["Summary", other.capitalize(), "Student", f"Student / {other}"],
        rows,
    )


def budget_table(budget: dict[str, Any]) -> Table:
    """A budget against what it bought; no row of a run without one."""
    asked, got = objects(budget).get("asked", {}), objects(budget).get("got", {})
    rows = [
        [name, num(asked.get(key) or None, digits, unit=unit), num(got.get(key), digits, unit=unit)]
        for name, key, digits, unit in (
            ("Weights", "mb", 1, " MB"),
            ("One text", "ms", 2, " ms"),
            ("Numbers a vector", "dim", 0, ""),
        )
        if real(got.get(key)) is not None or asked.get(key)
    ]
    if rows:
        promised = num(budget.get("promised"), 1, unit=" % of the teacher's nDCG@10")
        rows.append(["Quality that the menu promises", "–", promised])
    kept = "kept" if budget.get("kept") else "not kept"
    about = f"{budget.get('runtime', '–')} and {budget.get('precision', '–')}: {budget.get('student', '–')}"
    return Table(f"The budget was {kept}, in {about}", ["Budget", "At most", "Is"], rows)


def index_sentence(owner: dict[str, Any]) -> str:
    """Whose vectors the run's own index holds; empty where it has none."""
    if owner.get("by") == "teacher":
        model = without_secrets(str(owner.get("model", "unnamed")))
        return f"The run's index holds the vectors of the teacher, {model}; the student reads the questions."
    return "The run's index holds the student's own vectors." if owner else ""


def training_table(training: dict[str, Any]) -> Table:
    """What the training took: its time first, then each number and text of results.json's "training"."""
    rows = [
        [name.replace("_", " ").capitalize(), value if isinstance(value, str) else num(value, 0)]
        for name, value in training.items()
        if (isinstance(value, str) or real(value) is not None) and name != "seconds"
    ]
    if real(training.get("seconds")) is not None:
        rows.insert(0, ["Time", clock(training["seconds"])])
    return Table("What the training took", ["Training", "Value"], rows)


def score_table(
    caption: str,
    teacher: dict[str, Any],
    student: dict[str, Any],
    decimals: int,
    other: str,
    beside: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> Table:
    """Teacher beside student with retention, but for COSTS, one row a score, the average last.

    beside: further columns, where they have any score.
    """
    more = {title: scores for title, scores in beside.items() if scores}
    rows = [
        [
            name,
            num(teacher.get(name), decimals),
            num(student.get(name), decimals),
            num(None if name.endswith(COSTS) else retention(student.get(name), teacher.get(name)), 1, unit=" %"),
            *(num(scores.get(name), decimals) for scores in more.values()),
        ]
        for name in sorted(teacher | student, key=lambda name: name == "Avg")
        if real(teacher.get(name)) is not None or real(student.get(name)) is not None
    ]
    return Table(caption, ["Task", other.capitalize(), "Student", "Retention", *more], rows)


def agreement_table(agreement: dict[str, Any], other: str) -> Table:
    """The figures of student and teacher on the same texts."""
    figures = {name: value for name, value in agreement.items() if name != "texts" and real(value) is not None}
    rows = [[name.replace("_", " "), num(value, 4)] for name, value in figures.items()]
    texts = real(agreement.get("texts"))
    return Table(
        f"Student and {other} on the same {f'{texts:,.0f} ' if texts else ''}texts", ["Measure", "Value"], rows
    )


def speed_table(speed: list[dict[str, Any]], other: str) -> Table:
    """A row for each model and framework."""
    rows = [
        [
            str(row.get("model", "–")),
            str(row.get("framework", "–")),
            num(row.get("latency_ms"), 2, unit=" ms"),
            num(row.get("ratio"), 2, unit=" x"),
            num(row.get("bytes"), 1, 1e-6, " MB"),
            num(row.get("num_params"), 0),
        ]
        for row in compared_rows(speed)
    ]
    return Table(
        f"Latency of one text; speed is against the {other} in the same framework",
        ["Model", "Framework", "Latency", "Speed", "Size", "Parameters"],
        rows,
        text_columns=(1,),
    )
