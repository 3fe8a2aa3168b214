"""Rows of memory-mapped files: read here and there they are what the mapping shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jdistill.core import mapped
from jdistill.core.mapped import map_rows, scattered


@pytest.mark.parametrize("columns", [0, 5])
@pytest.mark.parametrize("large", [True, False])
def test_scattered_rows_are_those_of_the_mapping(
    large: bool, columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(mapped, "LARGE_BYTES", 100)
    values = np.random.default_rng(0).random((300, columns) if columns else 300).astype(np.float32)
    (tmp_path / "values").write_bytes(values.tobytes())
    whole = map_rows(tmp_path / "values", values.dtype, 300, columns)
    rows = np.array([299, 0, 17, 17, 120])
    found = scattered(whole, rows)
    np.testing.assert_array_equal(found, values[rows])
    found[:] = 0  # a copy, which may be written to
    assert scattered(whole, rows[:0]).shape == whole[:0].shape
    np.testing.assert_array_equal(scattered(whole[10:], np.array([3])), values[[13]])  # a view's rows are its own
