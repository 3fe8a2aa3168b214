"""Writes a run's page: report.html, which can be mailed as one file, and its charts as PNGs in report/."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import file_digest, read_seal
from jdistill.core.printable import without_secrets
from jdistill.core.run_folder import RUN
from jdistill.report import run_tables
from jdistill.report.beside import model_beside
from jdistill.report.charts import agreement_chart, curve_chart
from jdistill.report.facts import (
    objects,
    of_dev_pairs,
    of_search,
    read_json_object,
    read_metrics,
    scored_pairs,
    searched_by,
)
from jdistill.report.labelled import labelled_tables
from jdistill.report.page import Chart, write_page
from jdistill.report.tables import real

NOT_TERMS = ("loss", "lr", "sentences_per_s", "epoch")
SECTIONS = (
    "student", "teacher", "sts", "teacher_sts", "words_sts", "retrieval", "teacher_retrieval", "asymmetric_retrieval", "bm25_retrieval",
    "retrieval_rescored", "agreement", "training", "index", "budget",
)  # fmt: skip


@dataclass(frozen=True)
class StageCurves:
    """What the page shows of a stage. notes: lines on what could not be read or drawn."""

    name: str
    notes: list[str]
    charts: list[Chart]


def write_report(workdir: Path, results: dict[str, Any] | None = None) -> Path:
    """Writes report.html and report/*.png into the folder of a run, from what it holds.

    Reads config.json, results.json and STAGE/metrics.jsonl; where one is missing or spoilt the page says so in a line.

    Args:
      workdir: the folder of a run.
      results: what results.json will hold; None: it is read.

    Returns: the page's path.

    Raises: UserError where `workdir` is not a folder.
    """
    if not workdir.is_dir():
        raise UserError(f"--workdir {workdir}: no such folder; give the folder of a run (it holds config.json)")
    config, config_missing = read_json_object(workdir / "config.json")
    content, results_missing = read_json_object(workdir / "results.json") if results is None else (results, "")
    if results is None:
        results_missing = results_missing or edited_results(workdir)
    content = of_search(content, config)
    sections = {key: objects(content).get(key, {}) for key in SECTIONS}
    listed = content["speed"] if isinstance(content.get("speed"), list) else []
    speed = [row for row in listed if isinstance(row, dict)]
    stages = stage_curves(workdir)
    other = model_beside(config.get("teacher"))
    pairs = cosine_pairs(sections["agreement"])
    scatter = agreement_chart(pairs, other) if len(pairs) else None
    return write_page(
        workdir / "report.html",
        "run.html",
        [chart for stage in stages for chart in stage.charts] + ([scatter] if scatter else []),
        name=workdir.resolve().name,
        headline=run_tables.headline_sentence(sections, speed, other),
        other=other,
        warning=without_secrets(str(content.get("warning") or "")),
        summary=run_tables.summary_table(sections, other, str(config.get(other) or "")),
        budget=run_tables.budget_table(sections["budget"]),
        results_missing=results_missing,
        training=run_tables.training_table(sections["training"]),
        stages=stages,
        sts=run_tables.score_table(
            f"Spearman x 100; retention is the student's score in percent of its {other}'s",
            sections["teacher_sts"],
            sections["sts"],
            decimals=2,
            other=other,
            beside={"Words alone": sections["words_sts"]},
        ),
        scored_pairs=run_tables.score_table(
            f"Spearman x 100 on the run's dev pairs. {of_dev_pairs(content)}".strip(),
            scored_pairs(content, "teacher_"),
            scored_pairs(content),
            decimals=2,
            other=other,
            beside={"Words alone": scored_pairs(content, "words_")},
        ),
        retrieval=run_tables.score_table(
            f"By collection and measure{searched_by(content)}",
            by_measure(sections["teacher_retrieval"]),
            by_measure(sections["retrieval"]),
            decimals=4,
            other=other,
            beside={
                f"Student asks the {other}'s index": by_measure(sections["asymmetric_retrieval"]),
                "Ranked anew by its module": by_measure(sections["retrieval_rescored"]),
                "BM25": by_measure(sections["bm25_retrieval"]),
            },
        ),
        index_owner=run_tables.index_sentence(sections["index"]),
        labelled=labelled_tables(content),
        agreement=run_tables.agreement_table(sections["agreement"], other),
        scatter=scatter,
        speed=run_tables.speed_table(speed, other),
        config=without_secrets(json.dumps(config, indent=2, ensure_ascii=False)),
        config_missing=config_missing,
        command=without_secrets(str(content.get("command", ""))).replace(" --", " \\\n    --"),
    )


def edited_results(workdir: Path) -> str:
    """What a page of a run says where its results.json is not the one that it sealed; "" where it is, or nothing is sealed."""
    sealed = (read_seal(workdir, RUN) or {}).get("files", {}).get("results.json")
    if sealed is None or sealed == file_digest(workdir / "results.json"):
        return ""
    return "results.json has changed since the run wrote it, and these figures are not the run's; its command measures them anew"


def stage_curves(workdir: Path) -> list[StageCurves]:
    """Each stage's curves, in the order in which the stages were last written, which is the order of training."""
    files = sorted(workdir.glob("*/metrics.jsonl"), key=lambda path: (path.stat().st_mtime_ns, path.parent.name))
    return [_curves_of(path) for path in files]


def _curves_of(path: Path) -> StageCurves:
    """The curves of a STAGE/metrics.jsonl: the loss, its terms, the dev scores, then learning rate and speed."""
    stage = path.parent.name
    curves, bad = read_metrics(path)
    dev = [name for name in curves if name.startswith("dev/")]
    terms = [name for name in curves if name not in NOT_TERMS and name not in dev]
    shown = [name for name in ("loss", *terms, *dev, "lr", "sentences_per_s") if name in curves]
    charts = [curve_chart(stage, name, *curves[name]) for name in shown]
    notes = [f"Unreadable lines skipped in {stage}/metrics.jsonl: {bad:,}."] if bad else []
    if not dev:
        notes.append("No evaluation on dev data was recorded.")
    notes += [chart for chart in charts if isinstance(chart, str)]
    return StageCurves(stage, notes, [chart for chart in charts if isinstance(chart, Chart)])


def by_measure(retrieval: dict[str, Any]) -> dict[str, Any]:
    """Collection and measure -> score, from scores by collection."""
    return {
        f"{name} {measure}": value for name, scores in objects(retrieval).items() for measure, value in scores.items()
    }


def cosine_pairs(agreement: dict[str, Any]) -> np.ndarray:
    """The cosines of pairs of texts by teacher and student, float64 [n, 2], as far as they are numbers."""
    listed = agreement["pairs"] if isinstance(agreement.get("pairs"), list) else []
    whole = [pair for pair in listed if isinstance(pair, list) and len(pair) == 2 and None not in map(real, pair)]
    return np.array(whole, float).reshape(-1, 2)
