"""The charts of a sweep's page: the best dev score by a key's values, and dev scores by step."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from jdistill.report.charts import BLUE, RED, new_axes
from jdistill.report.page import Chart, draw_chart

MOST_BARS = 12  # of a key with more numbers, such as one drawn from a range, each trial is a dot
MOST_CURVES = 12


def setting(params: dict[str, Any]) -> str:
    """A trial's values as a line of text."""
    return ", ".join(f"{key} {value}" for key, value in params.items())


def key_chart(key: str, groups: list[dict[str, Any]], best: dict[Any, dict[str, Any]]) -> Chart:
    """Dev scores by the values of a key: a bar for the best of each, or for many numbers a dot for every setting.

    Args:
      groups: of report.sweep.over_seeds.
      best: value of the key -> the best group with it.
    """
    figure, axes = new_axes(2.8)
    caption = f"Best dev score by {key}, over the other keys"
    if len(best) <= MOST_BARS or not all(isinstance(value, int | float) for value in best):
        caption += "; red is the best; the axis does not begin at zero"
        if _bars(axes, best, groups[0]):
            caption += "; whiskers are one standard deviation over the seeds"
    else:
        x, y = zip(*((group["params"][key], group["mean"]) for group in groups), strict=True)
        axes.plot(x, y, "o", color=BLUE, markersize=4)
        if min(x) > 0 and max(x) > 20 * min(x):
            axes.set_xscale("log")
    axes.set_xlabel(key, parse_math=False)
    axes.set_ylabel("dev score")
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    means = "; ".join(f"{value}: {group['mean']:.2f}" for value, group in best.items())
    return draw_chart(f"sweep-{key}", figure, f"{caption}. {means}.", caption + ".")


def _bars(axes: Axes, best: dict[Any, dict[str, Any]], first: dict[str, Any]) -> bool:
    """Draws a bar for each value; returns whether they have whiskers. first: the best group, whose bar is red."""
    means = [group["mean"] for group in best.values()]
    spreads = [group["spread"] or 0.0 for group in best.values()]
    low, high = min(means), max(means)
    bars = axes.bar(
        range(len(best)),
        means,
        yerr=spreads if any(spreads) else None,
        color=[RED if group is first else BLUE for group in best.values()],
        capsize=3,
    )
    axes.bar_label(bars, [f"{mean:.1f}" for mean in means], fontsize=8 if len(means) < 9 else 5, padding=2)
    names = [str(value) for value in best]
    axes.set_xticks(range(len(best)), names, parse_math=False)
    if len("".join(names)) > 40:  # they would run into each other
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)
    # From zero a spread of a few points would be invisible; where all are positive the axis starts below the lowest.
    axes.set_ylim(max(0.0, low - 0.5 * (high - low) - 1) if low >= 0 else None, high + 0.2 * (high - low) + 1)
    return any(spreads)


def curves_chart(rows: list[dict[str, Any]]) -> Chart:
    """Dev score by step (figure 2) of the best trials; those that ended early are dashed. rows: of sweep.json, best first."""
    figure, axes = new_axes(2.8)
    shown = [row for row in rows if len(row["curve"]) > 1][:MOST_CURVES]  # a single score is no curve
    for i, row in enumerate(shown):
        axes.plot(
            [int(step) for step in row["curve"]],
            list(row["curve"].values()),
            color=BLUE if i else RED,
            linestyle="-" if row["score"] is not None else "--",
            alpha=0.4 if i else 1.0,
            zorder=-i,
        )
    axes.set_xlabel("step")
    axes.set_ylabel("dev score")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    ended = sum(row["score"] is not None for row in shown)
    early = f"; dashed, of {len(shown) - ended} that ended early" if ended < len(shown) else ""
    caption = f"Dev score by step of the {ended} best trials{early}; red is {setting(shown[0]['params'])}."
    return draw_chart("sweep-curves", figure, caption, caption)
