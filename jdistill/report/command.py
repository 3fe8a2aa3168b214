"""Writes a run's page: report.html, which can be mailed as one file, and its plots as PNGs in report/."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from jdistill.core.errors import UserError, exits_cleanly
from jdistill.core.progress import clock, log, setup_logging
from jdistill.report.labelled import labelled
from jdistill.report.page import (
    BLUE,
    RED,
    Page,
    curve,
    num,
    real,
    retention,
)

NOT_TERMS = ("loss", "lr", "sentences_per_s", "epoch")


def read_json(path: Path) -> tuple[dict[str, Any], str]:
    """The object in a JSON file and, where there is none to read, the line that says so (otherwise empty)."""
    try:
        found = json.loads(path.read_text("utf-8", errors="replace"))
    except FileNotFoundError:
        return {}, f"No {path.name} in this run's folder."
    except ValueError as error:
        return {}, f"{path.name} is not valid JSON ({error}) and was left out."
    return (found, "") if isinstance(found, dict) else ({}, f"{path.name} holds no JSON object and was left out.")


def read_metrics(path: Path) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], int]:
    """One stage's curves, name -> (steps int64 [n], values float64 [n]) by rising step, and the count of bad lines.

    A step found again (after a resume) replaces the earlier value; null and NaN are kept as NaN; a line that is not
    an object with an integer step, such as the last one of a killed run, counts as bad.
    """
    curves: dict[str, dict[int, float]] = {}
    bad = 0
    for line in filter(str.strip, path.read_text("utf-8", errors="replace").split("\n")):
        try:
            row = json.loads(line)
            step = row.pop("step")
            if type(step) is not int or step >= 2**63:
                raise TypeError("the step is not an integer")
            for name, value in row.items():
                if value is None or type(value) in (int, float):
                    curves.setdefault(name, {})[step] = float("nan" if value is None else value)
        except (ValueError, AttributeError, KeyError, TypeError, OverflowError):
            bad += 1
    return {
        name: (np.array(sorted(points), np.int64), np.array([points[s] for s in sorted(points)]))
        for name, points in curves.items()
    }, bad


def training(page: Page, facts: dict[str, Any]) -> None:
    """What the run cost, then each stage's curves."""
    page.put("h2", "Training")
    rows = [
        [name.replace("_", " ").capitalize(), value if isinstance(value, str) else num(value, 0)]
        for name, value in facts.items()
        if (isinstance(value, str) or real(value) is not None) and name != "seconds"
    ]
    if real(facts.get("seconds")) is not None:
        rows.insert(0, ["Time", clock(facts["seconds"])])
    if rows:
        page.table("What the training took", ["Training", "Value"], rows)
    # stages in the order in which they were last written, which is the order of training
    files = sorted(page.workdir.glob("*/metrics.jsonl"), key=lambda path: (path.stat().st_mtime_ns, path.parent.name))
    if not files:
        page.put("p", "No stage has written metrics.jsonl.", "note")
    for path in files:
        stage = path.parent.name
        curves, bad = read_metrics(path)
        dev = [name for name in curves if name.startswith("dev/")]
        terms = [name for name in curves if name not in NOT_TERMS and name not in dev]
        page.put("h3", f"Stage {stage}")
        if bad:
            page.put("p", f"Unreadable lines skipped in {stage}/metrics.jsonl: {bad:,}.", "note")
        if not dev:
            page.put("p", "No evaluation on dev data was recorded.", "note")
        page.html.append('<div class="plots">')
        for name in filter(curves.__contains__, ["loss", *terms, *dev, "lr", "sentences_per_s"]):
            curve(page, stage, name, *curves[name])
        page.html.append("</div>")


def scores(
    page: Page, title: str, caption: str, teacher: dict[str, Any], student: dict[str, Any], decimals: int
) -> None:
    """Teacher beside student with retention, one row a score, the average last."""
    page.put("h2", title)
    names = sorted(teacher | student, key=lambda name: name == "Avg")
    rows = [
        [
            name,
            num(teacher.get(name), decimals),
            num(student.get(name), decimals),
            num(retention(student.get(name), teacher.get(name)), 1, unit=" %"),
        ]
        for name in names
        if real(teacher.get(name)) is not None or real(student.get(name)) is not None
    ]
    if not rows:
        return page.put("p", "Not measured in this run.", "note")
    page.table(caption, ["Task", "Teacher", "Student", "Retention"], rows)


def agreement(page: Page, found: dict[str, Any]) -> None:
    """The student-against-teacher cosine scatter with its diagonal, and the figures that sum it up."""
    page.put("h2", "Agreement with the teacher")
    rows = [[name.replace("_", " "), num(value, 4)] for name, value in found.items() if real(value) is not None]
    listed = found["pairs"] if isinstance(found.get("pairs"), list) else []
    pairs = np.array([p for p in listed if isinstance(p, list) and len(p) == 2 and None not in map(real, p)], float)
    if not rows and not len(pairs):
        return page.put("p", "Not measured in this run.", "note")
    page.html.append('<div class="plots">')
    if len(pairs):
        low, high = pairs.min() - 0.03, max(1.03, pairs.max())
        figure = Figure(figsize=(4.2, 4.2), dpi=200, layout="constrained")
        axes = figure.subplots()
        axes.scatter(pairs[:, 0], pairs[:, 1], s=8, alpha=float(np.clip(400 / len(pairs), 0.05, 0.6)), color=BLUE, lw=0)
        axes.plot([low, high], [low, high], color=RED, linewidth=1)
        axes.set(
            xlim=(low, high), ylim=(low, high), aspect="equal", xlabel="teacher's cosine", ylabel="student's cosine"
        )
        axes.grid(alpha=0.25)
        off = f"{np.abs(pairs[:, 1] - pairs[:, 0]).mean():.3f}"
        page.plot(
            "agreement",
            figure,
            f"Student's cosine against the teacher's for {len(pairs):,} pairs of texts; "
            f"mean absolute difference {off}.",
            f"{len(pairs):,} pairs of texts. On the line both give the same "
            f"cosine; the mean absolute difference is {off}.",
        )
    if rows:
        page.table("Student and teacher on the same texts", ["Measure", "Value"], rows)
    page.html.append("</div>")


def write_headline(page: Page, results: dict[str, dict[str, Any]], speed: list[dict[str, Any]]) -> None:
    """The one sentence that says the result, as far as it was measured, then the table of size and score."""
    student, teacher = results["student"], results["teacher"]
    compared = [
        ("Parameters", teacher.get("num_params"), student.get("num_params"), 0, 1.0, ""),
        ("Size", teacher.get("bytes"), student.get("bytes"), 1, 1e-6, " MB"),
        ("STS average", results["teacher_sts"].get("Avg"), results["sts"].get("Avg"), 2, 1.0, ""),
        ("Tokens that its vocabulary lacks", None, student.get("unknown_tokens"), 2, 1.0, " %"),
    ]
    rows = [
        [
            name,
            num(theirs, digits, scale, unit),
            num(mine, digits, scale, unit),
            num(retention(mine, theirs), 1, unit=" %"),
        ]
        for name, theirs, mine, digits, scale, unit in compared
        if real(theirs) is not None or real(mine) is not None
    ]
    said = []
    for name, theirs, mine, share in rows:
        against = "" if share == "–" else f" ({share} of its teacher's {theirs})"
        if name == "Parameters" and mine != "–":
            said.append(f"has {mine} parameters{against}")
        elif name == "STS average" and mine != "–":
            said.append(f"scores {mine} on average on STS{against}")
    faster = ", ".join(
        f"{num(row['ratio'])} ({row.get('framework', '–')})"
        for row in speed
        if row.get("model") == student.get("name") and real(row.get("ratio")) is not None
    )
    if faster:
        said.append(f"is {faster} times as fast")
    text = " and ".join(filter(None, [", ".join(said[:-1]), *said[-1:]]))
    page.put("p", f"{student.get('name', 'The student')} {text}." if said else "This run has no result yet.", "lead")
    if rows:
        page.table(
            f"Teacher: {teacher.get('name', 'unnamed')}. Student: {student.get('name', 'unnamed')}.",
            ["Summary", "Teacher", "Student", "Student / teacher"],
            rows,
        )


def configuration(page: Page, config: dict[str, Any], missing: str, command: str) -> None:
    """The resolved config, folded, and the command that made the run."""
    page.put("h2", "Configuration and command")
    if missing:
        return page.put("p", missing, "note")
    page.html.append("<details><summary>config.json: every key, resolved</summary>")
    page.put("pre", json.dumps(config, indent=2, ensure_ascii=False))
    page.html.append("</details>")
    if not command:
        return page.put("p", "The command is recorded in results.json when the run ends.", "note")
    page.put("p", "The command that made this run (in a new folder it makes it again):")
    page.put("pre", command.replace(" --", " \\\n    --"))


def write_report(workdir: Path, results: dict[str, Any] | None = None) -> Path:
    """Writes report.html and report/*.png into the folder of a run, from what it holds; returns the page's path.

    Reads config.json, results.json (or takes `results`, which are yet to be written) and STAGE/metrics.jsonl; where one is missing or
    spoilt the page says so in a line. Raises UserError where `workdir` is not a folder.
    """
    if not workdir.is_dir():
        raise UserError(f"--workdir {workdir}: no such folder; give the folder of a run (it holds config.json)")
    config, no_config = read_json(workdir / "config.json")
    found, no_results = read_json(workdir / "results.json") if results is None else (results, "")
    results = {
        key: found[key] if isinstance(found.get(key), dict) else {}
        for key in (
            "student",
            "teacher",
            "sts",
            "teacher_sts",
            "retrieval",
            "teacher_retrieval",
            "agreement",
            "training",
        )
    }
    listed = found["speed"] if isinstance(found.get("speed"), list) else []
    speed = [row for row in listed if isinstance(row, dict)]
    page = Page(workdir)
    page.put("h1", f"Run {workdir.resolve().name}")
    write_headline(page, results, speed)
    if no_results:
        page.put("p", no_results, "note")
    training(page, results["training"])
    scores(
        page,
        "STS",
        "Spearman x 100; retention is the student's score in percent of its teacher's",
        results["teacher_sts"],
        results["sts"],
        2,
    )
    teachers, students = (
        {
            f"{name} {metric}": value
            for name, metrics in results[key].items()
            if isinstance(metrics, dict)
            for metric, value in metrics.items()
        }
        for key in ("teacher_retrieval", "retrieval")
    )
    scores(page, "Retrieval", "By collection and measure", teachers, students, 4)
    labelled(page, found)
    agreement(page, results["agreement"])
    page.put("h2", "Size and latency")
    rows = [
        [
            str(row.get("model", "–")),
            str(row.get("framework", "–")),
            num(row.get("latency_ms"), 2, unit=" ms"),
            num(row.get("ratio"), 2, unit=" x"),
            num(row.get("bytes"), 1, 1e-6, " MB"),
            num(row.get("num_params"), 0),
        ]
        for row in speed
    ]
    if rows:
        page.table(
            "Latency of one text; speed is against the teacher in the same framework",
            ["Model", "Framework", "Latency", "Speed", "Size", "Parameters"],
            rows,
            words=(1,),
        )
    else:
        page.put("p", "Not measured in this run.", "note")
    configuration(page, config, no_config, str(found.get("command", "")))
    return page.save("report.html", f"{workdir.resolve().name}: jdistill run")


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.report --workdir DIR`."""
    parser = argparse.ArgumentParser(prog="python -m jdistill.report", description=__doc__)
    parser.add_argument("--workdir", type=Path, required=True, help="the folder of a run")
    setup_logging()
    workdir = parser.parse_args(argv).workdir
    if workdir.is_dir() and "method" not in read_json(workdir / "config.json")[0]:
        for name in ("report.html", "report"):
            if (workdir / name).exists():
                raise UserError(f"--workdir={workdir} is no run's folder, and holds a {name} that is not jdistill's")
    log.info("report written to %s", write_report(workdir))
    return 0
