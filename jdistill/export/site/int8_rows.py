"""Unit vectors in a byte a number and a scale a row: what a search page compares a question's vector with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jdistill.retrieval.index import unit_rows

INT8_LARGEST = 127


def int8_rows(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of length one, rounded to whole numbers of a scale of their own.

    Args:
      vectors: float32 [N, D]; scaled to length one first.

    Returns: scales float32 [N] and rows int8 [N, D]; scale x row is the vector, each number within half a scale. A zero vector has the scale 0.
    """
    unit = unit_rows(vectors)
    scales = (np.abs(unit).max(axis=1, initial=0.0) / INT8_LARGEST).astype(np.float32)
    rows = np.rint(unit / np.where(scales > 0, scales, 1)[:, None])
    return scales, np.clip(rows, -INT8_LARGEST, INT8_LARGEST).astype(np.int8)


def int8_cosines(scales: np.ndarray, rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """The scores that a page gives.

    Args:
      scales, rows: as int8_rows gives them.
      queries: float32 [Q, D].

    Returns: float32 [Q, N], cosines but for the rounding.
    """
    return unit_rows(queries) @ (rows.astype(np.float32) * scales[:, None]).T


def write_int8_rows(path: Path, scales: np.ndarray, rows: np.ndarray) -> None:
    """Writes the scales, float32 in little-endian order, and after them the rows."""
    path.write_bytes(scales.astype("<f4").tobytes() + rows.tobytes())


def read_int8_rows(path: Path, width: int) -> tuple[np.ndarray, np.ndarray]:
    """What write_int8_rows wrote, of rows of this width."""
    content = path.read_bytes()
    count = len(content) // (4 + width)
    return np.frombuffer(content, "<f4", count), np.frombuffer(content, np.int8, offset=4 * count).reshape(count, width)
