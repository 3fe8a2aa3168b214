"""Renders a page from its template, and writes it with its charts, which it also holds as PNGs of its own."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jdistill.core.files import write_bytes
from jdistill.core.templates import page_templates

TEMPLATES = page_templates("jdistill.report")
PAGE_MARK = b'<meta name="generator" content="jdistill">'  # in templates/page.html


@dataclass(frozen=True)
class Chart:
    """A picture of a page. name: of its file, without the ending; alt: what it shows, for those who cannot see it."""

    name: str
    png: bytes
    alt: str
    caption: str

    @property
    def source(self) -> str:
        """The picture as the address that an <img> takes."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def draw_chart(name: str, figure: Figure, alt: str, caption: str) -> Chart:
    """A chart of a figure, which is drawn at once and may be forgotten."""
    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return Chart(name, buffer.getvalue(), alt, caption)


def is_page(path: Path) -> bool:
    """Whether a file is a page of ours."""
    return path.is_file() and PAGE_MARK in path.read_bytes()[:4096]


def write_page(path: Path, template: str, charts: Sequence[Chart], **content: Any) -> Path:
    """Writes a page, and its charts as PNGs into the folder report/ beside it; each file whole or not at all.

    Args:
      path: of the page.
      template: the name of a file in templates/.
      charts: all that the page shows; the template has them as `charts`.
      content: what else the template asks for.

    Returns: the page's path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if charts:
        (path.parent / "report").mkdir(exist_ok=True)
    for chart in charts:
        file_name = re.sub(r"[^A-Za-z0-9_.-]+", "_", chart.name)
        write_bytes(path.parent / "report" / f"{file_name}.png", chart.png)
    html = TEMPLATES.get_template(template).render(charts=charts, **content)
    write_bytes(path, html.encode("utf-8", "replace"))
    return path
