"""Writes a run's page: report.html, which can be mailed as one file, and its plots as PNGs in report/."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shlex
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from jdistill.errors import UserError, exits_cleanly
from jdistill.progress import clock, log, setup_logging

SHARED_KEYS = (
    "teacher",
    "text",
    "senteval",
    "beir",
    "dev_pairs",
    "epochs",
    "max_steps",
    "batch_size",
    "learning_rate",
    "seed",
)  # the keys that mean the same in every config
NOT_TERMS = ("loss", "lr", "sentences_per_s", "epoch")
BLUE, RED = "#14568c", "#c4461a"
CSS = """
:root{color-scheme:light dark;--ink:#1c2733;--soft:#5a6773;--line:#d9dfe5;--page:#fff;--card:#f4f6f8;--edge:#14568c}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#a3aeb9;--line:#38424c;--page:#14191e;--card:#1d242b;
--edge:#7db8ea}img{filter:brightness(.88)}}
*{box-sizing:border-box}body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem;background:var(--page);
color:var(--ink);font:1rem/1.5 system-ui,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
h1,h3,p,figcaption,caption,pre{overflow-wrap:anywhere}h1{font-size:1.6rem;line-height:1.2;margin:0 0 .5rem}
h2{font-size:1.2rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line)}h3{font-size:1rem;margin:1rem 0 .4rem}
.lead{font-size:1.12rem;border-left:4px solid var(--edge);padding:.2rem .9rem}
.note,caption,figcaption{color:var(--soft);font-size:.875rem}caption{text-align:left;padding:0 0 .35rem}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;margin:.5rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.32rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;font-weight:400}
th:first-child,.text{text-align:left;white-space:normal}
thead th{background:var(--card);font-weight:600;font-size:.875rem;white-space:normal}
tr.total>*{font-weight:700;border-top:2px solid var(--line)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem;align-items:start}
figure{margin:0;max-width:36rem}img{display:block;width:100%;border:1px solid var(--line);border-radius:4px}
pre{background:var(--card);padding:.8rem;font-size:.85rem;overflow-x:auto}
@media(max-width:30rem){th,td{padding:.3rem .25rem;font-size:.8rem}thead th{font-size:.75rem}}
@media print{body{max-width:none;padding:0;font-size:10pt}figure,tr{break-inside:avoid}h2,h3{break-after:avoid}
pre{white-space:pre-wrap}}
"""


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


def real(value: Any) -> float | None:
    """The value where it is a finite number, else None."""
    return float(value) if type(value) in (int, float) and abs(value) < 1e300 else None


def num(value: Any, decimals: int = 2, scale: float = 1.0, unit: str = "") -> str:
    """A number as the tables show it; a dash where there is none."""
    found = real(value)
    return "–" if found is None else f"{found * scale:,.{decimals}f}{unit}"


def retention(student: Any, teacher: Any) -> float | None:
    """The student's figure in percent of its teacher's; None unless both are finite and the teacher's is above 0."""
    mine, theirs = real(student), real(teacher)
    return None if mine is None or theirs is None or theirs <= 0 else 100 * mine / theirs


def smooth(values: np.ndarray) -> np.ndarray:
    """Running mean [n] over a twentieth of the points, centred, narrower at both ends; NaN and inf are left out."""
    n, at = len(values), np.arange(len(values))
    half = np.clip(np.minimum(at, n - 1 - at), n // 80, n // 40)
    first, after = np.maximum(at - half, 0), np.minimum(at + half + 1, n)
    finite = np.isfinite(values)
    total, count = (np.concatenate([[0.0], np.cumsum(x)]) for x in (np.where(finite, values, 0.0), finite))
    wide = count[after] - count[first]
    return np.divide(total[after] - total[first], wide, out=np.full(n, np.nan), where=wide > 0)


def best_point(name: str, steps: np.ndarray, values: np.ndarray) -> tuple[int, float]:
    """The step and value of the best finite point: the lowest for a loss or error, the highest for a score."""
    lower = re.search(r"(loss|mse|mae|error|perplexity)$", name.lower()) is not None
    at = int(np.argmax(np.where(np.isfinite(values), -values if lower else values, -np.inf)))
    return int(steps[at]), float(values[at])


def keep(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all: beside, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


class Page:
    """Gathers the page's HTML, with all text escaped, and keeps each plot as a PNG on the way."""

    def __init__(self, workdir: Path):
        self.workdir = workdir
        self.html: list[str] = []

    def put(self, tag: str, text: str, css: str = "") -> None:
        self.html.append(f"<{tag}{css and f' class={css}'}>{escape(text)}</{tag}>")

    def table(self, caption: str, head: list[str], rows: list[list[str]], words: tuple[int, ...] = ()) -> None:
        """The first column heads its row; the others are numbers, apart from the columns in `words`."""
        css = [" class=text" if i in words else "" for i in range(len(head))]
        self.html.append(f'<div class="wide" tabindex="0"><table><caption>{escape(caption)}</caption><thead><tr>')
        self.html += [f'<th scope="col"{c}>{escape(h)}</th>' for c, h in zip(css, head, strict=True)]
        self.html.append("</tr></thead><tbody>")
        for first, *rest in rows:
            self.html.append(f'<tr{" class=total" if first == "Avg" else ""}><th scope="row">{escape(first)}</th>')
            self.html += [f"<td{c}>{escape(v)}</td>" for c, v in zip(css[1:], rest, strict=True)] + ["</tr>"]
        self.html.append("</tbody></table></div>")

    def plot(self, name: str, figure: Figure, alt: str, caption: str) -> None:
        buffer = BytesIO()
        FigureCanvasAgg(figure).print_png(buffer)
        keep(self.workdir / "report" / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)}.png", buffer.getvalue())
        source = base64.b64encode(buffer.getvalue()).decode()
        self.html.append(
            f'<figure><img src="data:image/png;base64,{source}" alt="{escape(alt)}">'
            f"<figcaption>{escape(caption)}</figcaption></figure>"
        )


def curve(page: Page, stage: str, name: str, steps: np.ndarray, values: np.ndarray) -> None:
    """One small plot against the step: dev scores with their best step marked, others with a running mean."""
    label = name.encode("utf-8", "replace").decode()[:60]
    finite = np.isfinite(values)
    lost = f" NaN or infinite, not drawn: {(~finite).sum():,}." if not finite.all() else ""
    if not finite.any():
        return page.put("p", f"{label}: no finite value.{lost}", "note")
    low, high, first, last = values[finite].min(), values[finite].max(), values[finite][0], values[finite][-1]
    caption = f"{label}: {first:.4g} at first, {last:.4g} at last."
    figure = Figure(figsize=(4.2, 2.6), dpi=200, layout="constrained")
    axes = figure.subplots()
    dots = "o" if len(steps) < 20 else ""
    if name.startswith("dev/"):
        step, value = best_point(name, steps, values)
        axes.plot(steps, values, color=BLUE, marker="o", markersize=3)
        axes.plot([step], [value], color=RED, marker="*", markersize=13)
        caption = f"{label}: best {value:.4g} at step {step:,} (star)."
    elif name == "lr":
        axes.plot(steps, values, color=BLUE, marker=dots)
    else:
        axes.plot(steps, values, color=BLUE, alpha=0.35, linewidth=0.8, marker=dots)
        axes.plot(steps, smooth(values), color=BLUE, linewidth=1.6)
    thousands = FuncFormatter(lambda v, _: f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.4g}")
    if high < 1000:
        axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        axes.ticklabel_format(axis="y", style="plain")
    else:
        axes.yaxis.set_major_formatter(thousands)
    if name in ("lr", "sentences_per_s"):
        axes.set_ylim(bottom=0)
    elif low > 0 and high > 8 * low:  # a linear axis would flatten all but the first steps
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(thousands)
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(thousands)
    axes.set_title(label, fontsize=10, parse_math=False)
    axes.set_xlabel("step")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    page.plot(
        f"{stage}-{name}",
        figure,
        f"{label} by step, {steps[0]:,} to {steps[-1]:,}; lowest {low:.4g}, highest {high:.4g}.",
        caption + lost,
    )


def training(page: Page, facts: dict[str, Any]) -> None:
    """What the run cost, then each stage's curves."""
    page.put("h2", "Training")
    rows = [
        [name.replace("_", " ").capitalize(), num(value, 0)]
        for name, value in facts.items()
        if real(value) is not None and name != "seconds"
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


def configuration(page: Page, config: dict[str, Any], missing: str) -> None:
    """The resolved config, folded, and the command that runs it again."""
    page.put("h2", "Configuration and command")
    if missing:
        return page.put("p", missing, "note")
    page.html.append("<details><summary>config.json: every key, resolved</summary>")
    page.put("pre", json.dumps(config, indent=2, ensure_ascii=False))
    page.html.append("</details>")
    page.put("p", "To run it again, in a new folder (keys that were overridden beyond these: see config.json above):")
    command = [
        f"python -m jdistill.main --config configs/{config.get('method', 'CONFIG')}.py",
        f"--workdir {shlex.quote(f'{page.workdir}-again')}",
    ]
    command += [
        shlex.quote(f"--config.{key}={config[key]}")
        for key in SHARED_KEYS
        if type(config.get(key)) in (str, int, float, bool)
    ]
    page.put("pre", " \\\n    ".join(command))


def write_report(workdir: Path) -> Path:
    """Writes report.html and report/*.png into the folder of a run, from what it holds; returns the page's path.

    Reads config.json, results.json and STAGE/metrics.jsonl; where one is missing or spoilt the page says so in a
    line. Raises UserError where `workdir` is not a folder.
    """
    if not workdir.is_dir():
        raise UserError(f"--workdir {workdir}: no such folder; give the folder of a run (it holds config.json)")
    config, no_config = read_json(workdir / "config.json")
    found, no_results = read_json(workdir / "results.json")
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
    configuration(page, config, no_config)
    head = (
        f'<meta charset="utf-8"><title>{escape(workdir.resolve().name)}: jdistill run</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{CSS}</style>'
    )
    html = [f'<!doctype html><html lang="en"><head>{head}</head><body><main>', *page.html, "</main></body></html>\n"]
    keep(workdir / "report.html", "\n".join(html).encode("utf-8", "replace"))
    return workdir / "report.html"


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.report --workdir DIR`."""
    parser = argparse.ArgumentParser(prog="python -m jdistill.report", description=__doc__)
    parser.add_argument("--workdir", type=Path, required=True, help="the folder of a run")
    setup_logging()
    log.info("report written to %s", write_report(parser.parse_args(argv).workdir))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
