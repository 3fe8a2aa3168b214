"""The page that a report is made of: its style, numbers as a reader wants them, text, tables and plots."""

from __future__ import annotations

import base64
import re
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from jdistill.core.files import write_bytes

BLUE, RED = "#14568c", "#c4461a"  # the teacher and a mark; readable on both backgrounds

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
    """Writes a file whole or not at all, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)


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

    def save(self, name: str, title: str) -> Path:
        """Writes the page to WORKDIR/name."""
        head = (
            f'<meta charset="utf-8"><title>{escape(title)}</title>'
            f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{CSS}</style>'
        )
        html = [
            f'<!doctype html><html lang="en"><head>{head}</head><body><main>',
            *self.html,
            "</main></body></html>\n",
        ]
        keep(self.workdir / name, "\n".join(html).encode("utf-8", "replace"))
        return self.workdir / name


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
