"""What the first rows of a .csv or .tsv tell of the program that wrote it: other separators, and quotes where none are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.progress import log

FIRST_ROWS = 100  # of a table, which tell a column of numbers from one of text, and how it was written
_WARNING = (
    "WARNING: %s: its cells look quoted, as pandas writes them; a .tsv has no quotes here, so these are part of its texts, and a line feed "
    "within them ends a row; where they are not meant so, save the table as .csv"
)


def check_separated(path: Path, header: Sequence[str]) -> None:
    """Raises UserError where the columns of a .csv are separated by tabs or semicolons."""
    if len(header) == 1 and ("\t" in header[0] or ";" in header[0]):
        raise UserError(
            f"{path} line 1: no comma, but tabs or semicolons, between the columns; "
            "name a tab-separated file .tsv, or separate the columns with commas"
        )


def looks_quoted(columns: int, row: Sequence[str]) -> bool:
    """Whether a row of a .tsv, read without quotes, has a cell that quotes were put around: its own are doubled, or a line feed within it cut
    the row short.

    Args:
      columns: that the table has.
      row: its cells.
    """
    cut = 0 < len(row) < columns and row[-1].startswith('"') and row[-1].count('"') % 2 == 1
    return cut or any(map(_is_escaped, row))


def _is_escaped(cell: str) -> bool:
    inner = cell[1:-1]
    return cell[:1] == cell[-1:] == '"' and '""' in inner and '"' not in inner.replace('""', "")


def tell_quoted(path: Path, columns: int, rows: Iterable[Sequence[str]]) -> None:
    """Warns of a .tsv whose first rows, these, look quoted. columns: as in looks_quoted."""
    if any(looks_quoted(columns, row) for row in rows):
        log.warning(_WARNING, path)


def watched(path: Path, columns: int, rows: Iterable[dict[Any, Any]]) -> Iterator[dict[Any, Any]]:
    """The rows of a .tsv as they come, each its cells by column; warns once, as tell_quoted. columns: as in looks_quoted."""
    told = False
    for number, row in enumerate(rows):
        cells = [cell for cell in row.values() if isinstance(cell, str)]  # None: cut short; a list: surplus ones
        if not told and number < FIRST_ROWS and looks_quoted(columns, cells):
            log.warning(_WARNING, path)
            told = True
        yield row
