"""A page's table, and numbers as a reader wants them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

COSTS = ("index_bytes", "queries_per_s")  # among the figures of a search: they say nothing of its quality


@dataclass(frozen=True)
class Table:
    """The first column heads its row; the others are numbers, apart from the columns in `text_columns`."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    text_columns: tuple[int, ...] = ()


def real(value: Any) -> float | None:
    """The value where it is a finite number, else None."""
    return float(value) if type(value) in (int, float) and abs(value) < 1e300 else None


def num(value: Any, decimals: int = 2, scale: float = 1.0, unit: str = "") -> str:
    """A number as the tables show it; a dash where there is none."""
    number = real(value)
    return "–" if number is None else f"{number * scale:,.{decimals}f}{unit}"


def retention(student: Any, teacher: Any) -> float | None:
    """The student's figure in percent of its teacher's; None unless both are finite and the teacher's is above 0."""
    mine, theirs = real(student), real(teacher)
    return None if mine is None or theirs is None or theirs <= 0 else 100 * mine / theirs
