"""What bench/d2llm_table.py prints and keeps of its rows."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from typing import Any

from record import command_line, joined, keep_rows, shown, shown_run

from jdistill.core.files import flat

MEASURES = ("accuracy", "ap", "prior", "precision", "recall")


def keep_dev(flags: argparse.Namespace, row: str, results: list[dict[str, Any]]) -> None:
    """Adds to d2llm_table-dev.json what the results of each seed say of the dev pairs; older runs say nothing of them."""
    of_dev = [
        {"row": row, "seed": seed} | flat(of["dev"])
        for seed, of in zip(flags.seeds, results, strict=True)
        if "dev" in of
    ]
    if of_dev:
        keep_rows("d2llm_table-dev", command_line(), of_dev, ("row", "seed"), **settings_of(flags))


def retrieval_lines(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    """rows: row -> results.json's "questions" of each seed."""
    lines = ["", "| questions | by | mrr@10 | recall@10 |", "| --- | --- | --- | --- |"]
    for row, seeds in rows.items():
        for name in seeds[0]:
            for how in seeds[0][name]:
                means = [statistics.mean(of[name][how][measure] for of in seeds) for measure in ("mrr@10", "recall@10")]
                lines.append(f"| {row} | {how} | {means[0]:.3f} | {means[1]:.3f} |")
    return lines


def line(name: str, found: list[dict[str, Any]], floor_of: dict[str, Any] | None) -> str:
    """found: the figures of each seed."""
    cells = []
    for measure in MEASURES:
        values = [figures[measure] for figures in found]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 and measure != "prior" else ""
        cells.append(f"{statistics.mean(values):.2f}{spread}")
    kept = ""
    if floor_of and floor_of["ap"] > floor_of["prior"]:  # a share of nothing says nothing
        gain = statistics.mean(figures["ap"] - figures["prior"] for figures in found)
        kept = f"{100 * gain / (floor_of['ap'] - floor_of['prior']):.0f} %"
    return f"| {name} | {len(found)} | {' | '.join(cells)} | {kept} |"


def keep_pairs(flags: argparse.Namespace, figures: dict[str, list[dict[str, Any]]]) -> None:
    """Adds to d2llm_table.json. figures: row -> of each seed, file -> accuracy, ap and so on."""
    rows = [
        about | {"file": file} | {name: of[name] for name in MEASURES}
        for about, of_seed in by_seed(flags, figures)
        for file, of in of_seed.items()
    ]
    keep_rows("d2llm_table", command_line(), rows, ("row", "file", "seed"), **settings_of(flags))


def keep_questions(flags: argparse.Namespace, figures: dict[str, list[dict[str, Any]]]) -> None:
    """Adds to d2llm_table-questions.json. figures: row -> of each seed, file -> how -> mrr@10, recall@10."""
    rows = [
        about | {"file": file, "by": how, "mrr@10": of["mrr@10"], "recall@10": of["recall@10"]}
        for about, of_seed in by_seed(flags, figures)
        for file, ways in of_seed.items()
        for how, of in ways.items()
    ]
    keep_rows("d2llm_table-questions", command_line(), rows, ("row", "file", "by", "seed"), **settings_of(flags))


def by_seed(flags: argparse.Namespace, figures: dict[str, list[Any]]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Row and seed, None for what no seed changes, with their figures."""
    for row, of_seeds in figures.items():
        seeds = flags.seeds if row in flags.rows else [None]
        for seed, of_seed in zip(seeds, of_seeds, strict=True):
            yield {"row": row, "seed": seed}, of_seed


def settings_of(flags: argparse.Namespace) -> dict[str, Any]:
    judge = shown_run(flags.judge) if flags.judge else "tuned in student-0"
    about: dict[str, Any] = {"teacher": shown(flags.teacher), "judge": judge, "keys": joined(flags.extra)}
    return about | ({"variant": flags.variant} if flags.variant else {})
