"""Tables, names in code and paragraphs of the pages that are made."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from typing import Any

MADE = "<!-- made by docs/generate.py; do not edit -->"
WIDTH = 118


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(content: str) -> str:
    return " ".join(content.replace("|", "&#124;").split())


def code(name: str) -> str:
    """As code; by HTML where the text holds what a table's cell may not."""
    return f"<code>{name}</code>" if "|" in name else f"`{name}`"


def as_page(parts: Iterable[str]) -> str:
    """Paragraphs end by WIDTH characters; tables and code stay as they are."""
    return "\n\n".join(
        part if part.startswith(("|", "<!--", "#")) else
        "\n".join(textwrap.wrap(part, WIDTH, break_long_words=False, break_on_hyphens=False))
        for part in parts if part
    ) + "\n"  # fmt: skip


def short(value: Any) -> str:
    """A figure as a cell shows it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return (
        f"{value:,}"
        if isinstance(value, int) and abs(value) >= 10_000
        else f"{value:.6g}"
        if isinstance(value, float)
        else str(value)
    )


def with_spaces(key: str) -> str:
    return key.replace("_", " ")
