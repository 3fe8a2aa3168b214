"""The page of a sweep: its trials in a table, a bar chart for each key (DistilFACE's figures 3 to 6), and dev scores by step."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from jdistill.report.page import (
    BLUE,
    RED,
    Page,
    num,
)

MOST_BARS = 12  # of a key with more numbers, such as one drawn from a range, each trial is a dot
MOST_CURVES = 12


def over_seeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Trials that differ in their seed alone as one: params without seed, mean, spread (standard deviation; None for one) and
    count. Trials without a score are left out. Best mean first."""
    groups: dict[tuple, list[float]] = {}
    for row in rows:
        if row["score"] is not None:
            params = tuple((key, value) for key, value in row["params"].items() if key != "seed")
            groups.setdefault(params, []).append(row["score"])
    found = [
        {
            "params": dict(params),
            "mean": statistics.mean(scores),
            "spread": statistics.stdev(scores) if len(scores) > 1 else None,
            "count": len(scores),
        }
        for params, scores in groups.items()
    ]
    return sorted(found, key=lambda group: -group["mean"])


def best_by_value(groups: list[dict[str, Any]], key: str) -> dict[Any, dict[str, Any]]:
    """value of `key` -> the best group with it, over the other keys; values in ascending order."""
    found: dict[Any, dict[str, Any]] = {}
    for group in groups:  # best first
        found.setdefault(group["params"][key], group)
    values = list(found)
    numbers = all(isinstance(value, int | float) for value in values)
    return {value: found[value] for value in (sorted(values) if numbers else sorted(values, key=str))}


def write_sweep_page(workdir: Path, rows: list[dict[str, Any]]) -> Path:
    """WORKDIR/sweep.html and WORKDIR/report/*.png from the rows of sweep.json."""
    page = Page(workdir)
    page.put("h1", f"Sweep {workdir.resolve().name}")
    groups = over_seeds(rows)
    if not groups:
        page.put("p", "No trial has a score yet.", "note")
        return page.save("sweep.html", f"{workdir.resolve().name}: jdistill sweep")
    keys = list(groups[0]["params"])
    best = ", ".join(f"{key} {value}" for key, value in groups[0]["params"].items())
    page.put("p", f"Best dev score {num(groups[0]['mean'])}: {best or 'one setting, several seeds'}.", "lead")
    page.table(
        "Settings by their dev score, over seeds where there are several",
        [*keys, "Dev score", "Spread", "Seeds"],
        [
            [
                *(str(group["params"][key]) for key in keys),
                num(group["mean"]),
                num(group["spread"]),
                str(group["count"]),
            ]
            for group in groups
        ],
    )
    lost = [f"{_setting(row)} ({row['state']})" for row in rows if row["score"] is None]
    if lost:
        page.put("p", f"Ended early: {'; '.join(lost)}.", "note")
    page.html.append('<div class="plots">')
    for key in keys:
        values = best_by_value(groups, key)
        if len(values) > 1:
            _chart(page, key, groups, values)
    if any(len(row["curve"]) > 1 for row in rows):
        _curves(page, rows)
    page.html.append("</div>")
    return page.save("sweep.html", f"{workdir.resolve().name}: jdistill sweep")


def _chart(page: Page, key: str, groups: list[dict[str, Any]], values: dict[Any, dict[str, Any]]) -> None:
    figure = Figure(figsize=(4.2, 2.8), dpi=200, layout="constrained")
    axes = figure.subplots()
    best = max(values, key=lambda value: values[value]["mean"])
    caption = f"Best dev score by {key}, over the other keys"
    if len(values) <= MOST_BARS or not all(isinstance(value, int | float) for value in values):
        means = [of["mean"] for of in values.values()]
        spreads = [of["spread"] or 0.0 for of in values.values()]
        bars = axes.bar(
            range(len(values)),
            means,
            yerr=spreads if any(spreads) else None,
            color=[RED if value == best else BLUE for value in values],
            capsize=3,
        )
        axes.bar_label(bars, [f"{mean:.1f}" for mean in means], fontsize=8 if len(means) < 9 else 5, padding=2)
        names = [str(value) for value in values]
        axes.set_xticks(range(len(values)), names, parse_math=False)
        if len("".join(names)) > 40:  # they would run into each other
            axes.tick_params(axis="x", labelrotation=90, labelsize=7)
        low, high = min(means), max(means)
        # From zero a spread of a few points would be invisible; where all are positive the axis starts below the lowest.
        axes.set_ylim(max(0.0, low - 0.5 * (high - low) - 1) if low >= 0 else None, high + 0.2 * (high - low) + 1)
        caption += "; red is the best; the axis does not begin at zero" + (
            "; whiskers are one standard deviation over the seeds" if any(spreads) else ""
        )
    else:
        x, y = zip(*((group["params"][key], group["mean"]) for group in groups), strict=True)
        axes.plot(x, y, "o", color=BLUE, markersize=4)
        if min(x) > 0 and max(x) > 20 * min(x):
            axes.set_xscale("log")
    axes.set_xlabel(key, parse_math=False)
    axes.set_ylabel("dev score")
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    text = "; ".join(f"{value}: {of['mean']:.2f}" for value, of in values.items())
    page.plot(f"sweep-{key}", figure, f"{caption}. {text}.", caption + ".")


def _curves(page: Page, rows: list[dict[str, Any]]) -> None:
    """Dev score by step (figure 2) of the best trials."""
    figure = Figure(figsize=(4.2, 2.8), dpi=200, layout="constrained")
    axes = figure.subplots()
    shown = rows[:MOST_CURVES]
    for i, row in enumerate(shown):
        steps = [int(step) for step in row["curve"]]
        axes.plot(
            steps, list(row["curve"].values()), color=RED if i == 0 else BLUE, alpha=1.0 if i == 0 else 0.4, zorder=-i
        )
    axes.set_xlabel("step")
    axes.set_ylabel("dev score")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    caption = f"Dev score by step of the {len(shown)} best trials; red is the best, {_setting(shown[0])}."
    page.plot("sweep-curves", figure, caption, caption)


def _setting(row: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in row["params"].items())
