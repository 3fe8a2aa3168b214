"""The picture of a table: for each row a bar, or several side by side, with whiskers of one standard deviation where there are seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw_bars(
    path: Path, rows: Mapping[str, Mapping[str, Sequence[float]]], label: str, from_zero: bool = True
) -> None:
    """rows: row -> bar -> its values, of each seed; every row has the same bars. label: of the axis, with the unit. from_zero:
    else the axis begins a little below the lowest mean, as differences of a few points ask for, and its label says so."""
    bars = list(next(iter(rows.values())))
    figure = Figure(figsize=(5.6, 0.6 + 0.3 * len(rows) * (0.5 + 0.5 * len(bars))), dpi=200, layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(bars)
    means = {bar: [statistics.mean(of[bar]) for of in rows.values()] for bar in bars}
    for i, bar in enumerate(bars):
        spreads = [statistics.stdev(of[bar]) if len(of[bar]) > 1 else math.nan for of in rows.values()]
        places = [row + (i - (len(bars) - 1) / 2) * height for row in range(len(rows))]
        drawn = axes.barh(places, means[bar], 0.9 * height, xerr=spreads, capsize=2, label=bar)
        axes.bar_label(drawn, [f"{mean:.1f}" for mean in means[bar]], fontsize=7, padding=3)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8, parse_math=False)
    axes.invert_yaxis()
    axes.tick_params(axis="x", labelsize=8)
    low, high = (of(mean for of_bar in means.values() for mean in of_bar) for of in (min, max))
    axes.set_xlim(
        0 if from_zero else low - 0.5 * (high - low) - 1, high + 0.15 * (high if from_zero else high - low + 1)
    )
    axes.set_xlabel(label if from_zero else f"{label}; the axis does not begin at zero", fontsize=8, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    if len(bars) > 1:
        axes.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(path))
    print(path)
