"""The page of a sweep: its trials in a table, a chart for each key (DistilFACE's figures 3 to 6), and dev scores by step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jdistill.report.page import write_page
from jdistill.report.sweep_charts import curves_chart, key_chart, setting
from jdistill.report.tables import Table, num


def over_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Trials that differ in their seed alone as one, best mean first; those without any score are left out.

    A mean over fewer seeds than were tried is no measure: the worst of them were pruned, or diverged. Such settings come after the others,
    and after them those of an earlier grid, which may have had other seeds.

    Args:
      rows: of sweep.json: params; score; state; curve, the dev score by step; earlier, True, of those of an earlier grid.

    Returns: params without the seed, mean, spread (standard deviation; None for one trial), count (seeds with a score), tried (seeds)
      of each, seed (that of the only trial; None where there are more, or the sweep varies none) and earlier.
    """
    groups: dict[tuple, list[tuple[float | None, Any]]] = {}
    for row in rows:
        params = tuple((key, value) for key, value in row["params"].items() if key != "seed")
        groups.setdefault((row.get("earlier", False), params), []).append((row["score"], row["params"].get("seed")))
    merged = [
        {
            "params": dict(params),
            "mean": statistics.mean(scores),
            "spread": statistics.stdev(scores) if len(scores) > 1 else None,
            "count": len(scores),
            "tried": len(tried),
            "seed": tried[0][1] if len(tried) == 1 else None,
            "earlier": earlier,
        }
        for (earlier, params), tried in groups.items()
        if (scores := [score for score, _ in tried if score is not None])
    ]
    return sorted(merged, key=lambda group: (group["earlier"], group["count"] < group["tried"], -group["mean"]))


def seeds_in_words(group: dict[str, Any]) -> str:
    """How many seeds a setting's mean is of: "3" or, where some had no score, "1 of 3"; and whether of an earlier grid. group: of over_seeds."""
    seeds = str(group["count"]) if group["count"] == group["tried"] else f"{group['count']} of {group['tried']}"
    return seeds + ", earlier grid" * group["earlier"]


def best_by_value(groups: list[dict[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    """value of `key` -> the best group with it, over the other keys; values in ascending order."""
    best: dict[Any, dict[str, Any]] = {}
    for group in groups:  # best first
        best.setdefault(group["params"][key], group)
    values = list(best)
    numbers = all(isinstance(value, int | float) for value in values)
    return {value: best[value] for value in (sorted(values) if numbers else sorted(values, key=str))}


def settings_table(groups: list[dict[str, Any]]) -> Table:
    """A row for each group of over_seeds, with a column for each key that varies."""
    keys = list(groups[0]["params"]) if groups else []
    return Table(
        "Settings by their dev score, over seeds where there are several",
        [*keys, "Dev score", "Spread", "Seeds"],
        [
            [
                *(str(group["params"][key]) for key in keys),
                num(group["mean"]),
                num(group["spread"]),
                seeds_in_words(group),
            ]
            for group in groups
        ],
    )


def write_sweep_page(workdir: Path, rows: list[dict[str, Any]], to_come: Sequence[dict[str, Any]] = ()) -> Path:
    """Writes WORKDIR/sweep.html and WORKDIR/report/*.png; returns the page's path.

    Args:
      rows: of sweep.json.
      to_come: of a grid the params of the trials that have not ended yet, whose seeds count as tried.
    """
    groups = over_seeds([*rows, *({"params": params, "score": None} for params in to_come)])
    ended = sum(not row.get("earlier", False) for row in rows)
    charts = []
    for key in groups[0]["params"] if groups else ():
        values = best_by_value(groups, key)
        if len(values) > 1:
            charts.append(key_chart(key, groups, values))
    if groups and any(len(row["curve"]) > 1 for row in rows):
        charts.append(curves_chart(rows))
    return write_page(
        workdir / "sweep.html",
        "sweep.html",
        charts,
        name=workdir.resolve().name,
        best_score=num(groups[0]["mean"]) if groups else "",
        best_setting=setting(groups[0]["params"]) if groups else "",
        settings=settings_table(groups),
        unfinished=f"{ended} of {ended + len(to_come)} trials have ended" if to_come else "",
        ended_early=[f"{setting(row['params'])} ({_end_of(row)})" for row in rows if row["score"] is None],
    )


def _end_of(row: dict[str, Any]) -> str:
    return f"{row['state']}: {row['error']}" if "error" in row else row["state"]
