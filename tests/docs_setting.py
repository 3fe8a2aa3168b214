"""The pages of README, docs/ and the build notes, and their blocks of code."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commands import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ALL = [*PAGES, ROOT / "BUILD_NOTES.md", ROOT / "SECURITY.md"]
NOT_RUN = re.compile(r"<!-- not run: .{5,} -->")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    runs: bool


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    lines, start = page.read_text().splitlines(), None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
            continue
        marked = start > 0 and NOT_RUN.fullmatch(lines[start - 1]) is not None
        yield Block(page, start + 1, lines[start][3:], "\n".join(lines[start + 1 : number]), not marked)
        start = None
    assert start is None, f"{page}: a block that does not end"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def config_names() -> list[str]:
    return sorted(path.stem for path in (ROOT / "configs").glob("*.py"))


def config(name: str):
    return importlib.import_module(f"configs.{name}").get_config()
