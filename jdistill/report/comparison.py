"""The page of a comparison: encoders side by side in two tables, and the charts of IBKD's section 4.7."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from jdistill.report.charts import BLUE
from jdistill.report.page import Chart, draw_chart, write_page
from jdistill.report.tables import Table, num

GEOMETRY = ("alignment", "uniformity", "off_diagonal")


def write_comparison_page(figures: dict[str, dict[str, Any]], out: Path) -> Path:
    """Writes OUT/compare.html and OUT/report/*.png; returns the page's path.

    Args:
      figures: a model's name -> its figures, as jdistill.compare.score_model gives them.
      out: a folder.
    """
    scatter, covariance = alignment_chart(figures), covariance_chart(figures)
    return write_page(
        out / "compare.html",
        "comparison.html",
        [scatter, covariance],
        sts=sts_table(figures),
        geometry=geometry_table(figures),
        scatter=scatter,
        covariance=covariance,
    )


def sts_table(figures: dict[str, dict[str, Any]]) -> Table:
    """A row for each model: its size and its STS scores."""
    tasks = list(next(iter(figures.values()))["sts"])
    return Table(
        "STS, Spearman x 100",
        ["Model", "Parameters", "Width", *tasks],
        [
            [name, num(of["num_params"], 1, 1e-6, " M"), str(of["dim"]), *(num(of["sts"][task]) for task in tasks)]
            for name, of in figures.items()
        ],
    )


def geometry_table(figures: dict[str, dict[str, Any]]) -> Table:
    """A row for each model: what its vectors' directions are like."""
    return Table(
        "Geometry: alignment and uniformity on STS-B, mean absolute covariance off the diagonal; all three lower is better",
        ["Model", "Alignment", "Uniformity", "Off-diagonal"],
        [[name, *(num(of["geometry"][key], 4) for key in GEOMETRY)] for name, of in figures.items()],
    )


def alignment_chart(figures: dict[str, dict[str, Any]]) -> Chart:
    """Alignment against uniformity, a point for each model."""
    figure = Figure(figsize=(5.6, 4.2), dpi=200, layout="constrained")
    axes = figure.subplots()
    x, y = ([of["geometry"][key] for of in figures.values()] for key in ("uniformity", "alignment"))
    averages = [of["sts"].get("Avg") for of in figures.values()]  # where a task is missing there is none
    if None in averages:
        axes.scatter(x, y, color=BLUE, s=60, zorder=3)
    else:
        dots = axes.scatter(x, y, c=averages, cmap="viridis", s=60, zorder=3)
        figure.colorbar(dots, label="STS average")
    for name, at in zip(figures, zip(x, y, strict=True), strict=True):
        axes.annotate(name, at, xytext=(6, 4), textcoords="offset points", fontsize=8, parse_math=False)
    axes.set(xlabel="uniformity", ylabel="alignment")
    axes.margins(0.18)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return draw_chart(
        "alignment-uniformity",
        figure,
        "Alignment against uniformity, a point a model, coloured by its STS average.",
        "Both lower is better; the colour is the STS average. IBKD, figure 5.",
    )


def covariance_chart(figures: dict[str, dict[str, Any]]) -> Chart:
    """The absolute covariance of each model's first dimensions, a panel for each model."""
    shown = len(next(iter(figures.values()))["covariance"])
    columns = min(4, len(figures))
    rows = -(-len(figures) // columns)
    figure = Figure(figsize=(2.4 * columns + 0.8, 2.5 * rows), dpi=200, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    for panel, (name, of) in zip(panels.flat, figures.items(), strict=False):
        panel.imshow(np.abs(of["covariance"]), cmap="Blues", vmin=0, vmax=1)
        panel.set_title(name, fontsize=9, parse_math=False)
    figure.colorbar(ScalarMappable(Normalize(0, 1), "Blues"), ax=panels, shrink=0.7)
    return draw_chart(
        "covariance",
        figure,
        f"Covariance of the first {shown} dimensions of each model.",
        f"Absolute covariance of the first {shown} dimensions, unit vectors, scaled so that isotropic vectors have 1 on the "
        "diagonal. IBKD, figure 4.",
    )
