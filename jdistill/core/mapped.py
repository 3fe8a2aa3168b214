"""Arrays that lie in files: opened without being read, read in blocks, and given back by the process once they were."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

READ_BYTES = 1 << 22
SMALL_BYTES = 1 << 23
LARGE_BYTES = 1 << 33
SCATTERED_ROWS = 512  # each of which brings in 64 KB


def map_rows(path: Path, dtype: np.dtype, rows: int, columns: int = 0) -> np.ndarray:
    """The first rows of a raw file, memory-mapped for reading; an ordinary empty array where there are none.

    Args:
      columns: numbers of a row; 0: the array has one axis.
    """
    shape = (rows, columns) if columns else (rows,)
    return np.memmap(path, dtype, "r", shape=shape) if rows else np.empty(shape, dtype)


def release(*mapped: object) -> None:
    """Takes what was read of memory-mapped arrays, or of a file of texts, out of resident memory; it is read again when asked for.

    The system would take such pages itself once it lacks memory, but counts them until then: a row here and there brings in 16 pages each
    time. Files below SMALL_BYTES are left as they are.
    """
    for each in mapped:
        mapping = getattr(each, "_mmap", None)
        if isinstance(mapping, mmap.mmap) and len(mapping) > SMALL_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            mapping.madvise(mmap.MADV_DONTNEED)


def rows_of(mapped: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """mapped[rows] as a copy. Of rows here and there so many at a time that the pages they bring in stay few.

    Args:
      mapped: [N], memory-mapped.
      rows: int64 [n].
    """
    chosen = np.empty(len(rows), mapped.dtype)
    for part in slices_of(len(rows), SCATTERED_ROWS):
        chosen[part] = mapped[rows[part]]
        release(mapped)
    return chosen


def scattered(mapped: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """mapped[rows] as a copy. Of a large file they are read from it and not through the mapping: each place where a mapping was touched
    keeps a page of the system's tables, over which every `release` goes again, and of a terabyte there are half a million.

    Args:
      mapped: [N, …], memory-mapped.
      rows: int64 [n].
    """
    # A view of a mapping does not say where in the file it begins.
    from_file = isinstance(mapped, np.memmap) and isinstance(mapped.base, mmap.mmap) and mapped.nbytes > LARGE_BYTES
    if not from_file or len(rows) > SCATTERED_ROWS * SCATTERED_ROWS:
        copied: np.ndarray = mapped[rows]
        return copied
    assert isinstance(mapped, np.memmap) and mapped.filename
    row_bytes = mapped.nbytes // len(mapped)
    out = np.zeros((len(rows), *mapped.shape[1:]), mapped.dtype)
    with open(mapped.filename, "rb", buffering=0) as file:
        for row, place in zip(rows.tolist(), out.view(np.uint8).reshape(len(rows), row_bytes), strict=True):
            os.preadv(file.fileno(), [place.data], mapped.offset + row * row_bytes)
    return out


def file_sum(path: Path, start: int = 0, stop: int | None = None) -> int:
    """The CRC-32 of a file's bytes from `start` to `stop`, read in blocks."""
    crc = 0
    with open(path, "rb") as file:
        file.seek(start)
        left = (path.stat().st_size if stop is None else stop) - start
        while left > 0 and (block := file.read(min(READ_BYTES, left))):
            crc, left = zlib.crc32(block, crc), left - len(block)
    return crc


def slices_of(total: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that follow one another up to `total`."""
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
