"""The charts of a run's page: curves by step, and the student's cosines against the teacher's."""

from __future__ import annotations

import re

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from jdistill.report.page import Chart, draw_chart

BLUE, RED = "#14568c", "#c4461a"  # the teacher and a mark; readable on both backgrounds
HUGE = 1e6  # times the middle of all: as many digits of float64 are left to what is summed
THOUSANDS = FuncFormatter(lambda v, _: f"{v:,.0f}" if abs(v) >= 1000 else f"{v:.4g}")


def new_axes(height: float) -> tuple[Figure, Axes]:
    """A figure of the width that all charts share, in inches, and its axes."""
    figure = Figure(figsize=(4.2, height), dpi=200, layout="constrained")
    return figure, figure.subplots()


def smooth(values: np.ndarray) -> np.ndarray:
    """Running mean [n] over a twentieth of the points, centred, narrower at both ends; NaN and inf are left out.

    A loss that exploded counts where it stands: summed by itself, it takes the digits of no other window's sum.
    """
    n, at = len(values), np.arange(len(values))
    half = np.clip(np.minimum(at, n - 1 - at), n // 80, n // 40)
    first, after = np.maximum(at - half, 0), np.minimum(at + half + 1, n)
    finite, sizes = np.isfinite(values), np.abs(values)
    huge = finite & (sizes > HUGE * np.median(sizes[finite])) if finite.any() else finite
    parts = np.where(finite & ~huge, values, 0.0), np.where(huge, values, 0.0), finite
    few, many, wide = (sums[after] - sums[first] for sums in (np.concatenate([[0.0], np.cumsum(x)]) for x in parts))
    return np.divide(few + many, wide, out=np.full(n, np.nan), where=wide > 0)


def best_point(name: str, steps: np.ndarray, values: np.ndarray) -> tuple[int, float]:
    """The step and value of the best finite point: the lowest for a loss or error, the highest for a score."""
    lower = re.search(r"(loss|mse|mae|error|perplexity)$", name.lower()) is not None
    at = int(np.argmax(np.where(np.isfinite(values), -values if lower else values, -np.inf)))
    return int(steps[at]), float(values[at])


def curve_chart(stage: str, name: str, steps: np.ndarray, values: np.ndarray) -> Chart | str:
    """A small plot against the step: of a dev score with its best step marked, of others with a running mean.

    Args:
      steps: int64 [n], rising.
      values: float64 [n].

    Returns: the chart, or where no value is finite a line that says so.
    """
    label = name.encode("utf-8", "replace").decode()[:60]
    finite = np.isfinite(values)
    lost = f" NaN or infinite, not drawn: {(~finite).sum():,}." if not finite.all() else ""
    if not finite.any():
        return f"{label}: no finite value.{lost}"
    low, high, first, last = values[finite].min(), values[finite].max(), values[finite][0], values[finite][-1]
    caption = f"{label}: {first:.4g} at first, {last:.4g} at last."
    figure, axes = new_axes(2.6)
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
    _scale_values(axes, low, high, from_zero=name in ("lr", "sentences_per_s"))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(THOUSANDS)
    axes.set_title(label, fontsize=10, parse_math=False)
    axes.set_xlabel("step")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    alt = f"{label} by step, {steps[0]:,} to {steps[-1]:,}; lowest {low:.4g}, highest {high:.4g}."
    return draw_chart(f"{stage}-{name}", figure, alt, caption + lost)


def _scale_values(axes: Axes, low: float, high: float, from_zero: bool) -> None:
    """The axis of values from low to high: logarithmic where a linear one would flatten all but the first steps."""
    if high < 1000:
        axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        axes.ticklabel_format(axis="y", style="plain")
    else:
        axes.yaxis.set_major_formatter(THOUSANDS)
    if from_zero:
        axes.set_ylim(bottom=0)
    elif low > 0 and high > 8 * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(THOUSANDS)
        axes.yaxis.set_minor_formatter(NullFormatter())


def agreement_chart(pairs: np.ndarray, other: str) -> Chart:
    """The student's cosine against the teacher's with the line on which both are the same.

    Args:
      pairs: float64 [n, 2], teacher first.
      other: what the teacher is called, as report.beside has it.
    """
    low, high = pairs.min() - 0.03, max(1.03, pairs.max())
    figure, axes = new_axes(4.2)
    axes.scatter(pairs[:, 0], pairs[:, 1], s=8, alpha=float(np.clip(400 / len(pairs), 0.05, 0.6)), color=BLUE, lw=0)
    axes.plot([low, high], [low, high], color=RED, linewidth=1)
    axes.set(xlim=(low, high), ylim=(low, high), aspect="equal", xlabel=f"{other}'s cosine", ylabel="student's cosine")
    axes.grid(alpha=0.25)
    off = f"{np.abs(pairs[:, 1] - pairs[:, 0]).mean():.3f}"
    return draw_chart(
        "agreement",
        figure,
        f"Student's cosine against the {other}'s for {len(pairs):,} pairs of texts; mean absolute difference {off}.",
        f"{len(pairs):,} pairs of texts. On the line both give the same cosine; the mean absolute difference is {off}.",
    )
