"""Sorted keys: as a dict finds them, in memory and in a file, in one bucket and in many."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from jdistill.core import sorted_keys
from jdistill.core.mapped import file_sum, map_rows, release
from jdistill.core.sorted_keys import KEY, keys_of_texts, sort_keys


def keys_from(numbers: list[tuple[int, int]]) -> np.ndarray:
    """Keys of a first and a second half, of which few differ, so that many share either."""
    return np.array([[a * 2**62, b] for a, b in numbers], np.uint64).reshape(-1, 2).view(KEY)[:, 0]


few = st.tuples(st.integers(0, 3), st.integers(0, 2))


@settings(derandomize=True, deadline=None, max_examples=80)
@given(st.lists(few, max_size=60), st.lists(few, max_size=20), st.sampled_from([0, 2, 7, 100]))
def test_keys_are_found_and_repeats_told_as_a_dict_does(
    numbers: list[tuple[int, int]], wanted: list[tuple[int, int]], bucket: int
) -> None:
    """bucket: rows of one on disk; 0: in memory."""
    keys = keys_from(numbers)
    row_of = {key: row for row, key in enumerate(keys.tolist())}
    seen: set[bytes] = set()
    again = [key in seen or seen.add(key) or False for key in keys.tolist()]
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        if bucket:
            patch.setattr(sorted_keys, "BUCKET_ROWS", bucket)
        index = sort_keys(keys, Path(scratch) / "index" if bucket else None)
        assert index.find(keys_from(wanted)).tolist() == [row_of.get(key, -1) for key in keys_from(wanted).tolist()]
        assert index.repeats().tolist() == again


def test_many_keys_on_disk_are_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_keys, "BUCKET_ROWS", 1 << 10)
    keys = keys_of_texts(f"text {i % 40_000}" for i in range(50_000))
    on_disk, in_memory = sort_keys(keys, tmp_path / "index"), sort_keys(keys)
    assert (on_disk.first == in_memory.first).all() and (on_disk.rows == in_memory.rows).all()
    assert (on_disk.repeats() == (np.arange(50_000) >= 40_000)).all()
    assert (on_disk.find(keys_of_texts(["text 7", "text 39999", "never"])) == [40_007, 39_999, -1]).all()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_a_full_disk_is_an_error_before_a_page_is_mapped(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refused(handle: int, start: int, size: int) -> None:
        asked.append(size)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refused, raising=False)
    keys = keys_of_texts(["a", "b", "c"])
    if number == errno.ENOSPC:
        with pytest.raises(OSError, match="No space left on device: .*index"):
            sort_keys(keys, tmp_path / "index")
    else:  # a file system that cannot reserve room
        assert (sort_keys(keys, tmp_path / "index").first == sort_keys(keys).first).all()
    assert asked == [48]


def test_what_was_released_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    np.arange(5000, dtype=np.int64).tofile(path)
    rows = map_rows(path, np.dtype(np.int64), 5000)
    assert rows.sum() == 4999 * 2500
    release(rows, np.zeros(3))
    assert rows.sum() == 4999 * 2500
    assert file_sum(path, 8, 16) == file_sum(path, 8, 16) != file_sum(path, 0, 8)
    assert map_rows(path, np.dtype(np.int64), 0, 4).shape == (0, 4)
