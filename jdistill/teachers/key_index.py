"""Where the answer to a key stands in a part of an answer cache: found by binary search, of many keys in a file beside them.

part-00000.index     of a part with more than KEPT_ABOVE answers: its keys in order (core.sorted_keys), then a trailer. It can always be made
                     again from the keys, and is where they have changed, or many have come.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from jdistill.core.files import TEMPORARY, writing_beside
from jdistill.core.left_over import clear_beside
from jdistill.core.locks import only_one
from jdistill.core.mapped import file_sum
from jdistill.core.progress import log
from jdistill.core.sorted_keys import BUCKET_ROWS, HALF, KEY, ROW, SortedKeys, sort_keys

KEPT_ABOVE = BUCKET_ROWS  # keys that are sorted in memory, in a tenth of a second
TRAILER = struct.Struct(
    "<8sQII"
)  # what it is; number of keys; CRC-32 of the keys, and of all that stands before the trailer
MARK = b"jdkeys01"


@dataclass(frozen=True)
class PartIndex:
    """Finds keys in a part.

    Args:
      kept: of the first keys, in a file where they are many.
      tail: of those behind, which were appended since.
    """

    kept: SortedKeys
    tail: SortedKeys

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """The last row of each key, int64 [len(wanted)]; -1 of one that is not there."""
        rows, later = self.kept.find(wanted), self.tail.find(wanted)
        return np.where(later >= 0, later + len(self.kept.keys), rows)


def open_index(keys_path: Path, keys: np.ndarray, earlier: PartIndex | None = None) -> PartIndex:
    """The index of a part's keys.

    Args:
      keys_path: their file.
      keys: [N] of 16 bytes, memory-mapped.
      earlier: the index of the first of them, whose file has been looked at.
    """
    if len(keys) <= KEPT_ABOVE:
        return PartIndex(sort_keys(keys[:0]), sort_keys(keys))
    if earlier is not None and (n := len(earlier.kept.keys)) > 0 and len(keys) <= n + KEPT_ABOVE:
        return PartIndex(replace(earlier.kept, keys=keys[:n]), sort_keys(keys[n:]))
    path = keys_path.with_suffix(".index")
    kept = _read(path, keys_path, keys)
    if kept is None:
        with only_one(keys_path.with_name(f"{TEMPORARY}lock-{path.name}"), keys_path, "sorting", wait=True):
            clear_beside(path)
            kept = _read(path, keys_path, keys) or _write(path, keys_path, keys)
    return PartIndex(kept, sort_keys(keys[len(kept.keys) :]))


def _read(path: Path, keys_path: Path, keys: np.ndarray) -> SortedKeys | None:
    """The index of the keys or of all but a few; None where there is none that belongs to them."""
    if not path.is_file() or (size := path.stat().st_size - TRAILER.size) < 0:
        return None
    with open(path, "rb") as file:
        file.seek(size)
        mark, n, sum_of_keys, sum_of_index = TRAILER.unpack(file.read(TRAILER.size))
    fits = mark == MARK and 0 < n <= len(keys) <= n + KEPT_ABOVE and size == n * (HALF.itemsize + ROW.itemsize)
    if not fits or sum_of_keys != file_sum(keys_path, 0, n * KEY.itemsize) or sum_of_index != file_sum(path, 0, size):
        return None
    first, rows = np.memmap(path, HALF, "r", 0, (n,)), np.memmap(path, ROW, "r", n * HALF.itemsize, (n,))
    return SortedKeys(keys[:n], first, rows)


def _write(path: Path, keys_path: Path, keys: np.ndarray) -> SortedKeys:
    log.info("sorting the keys of %d answers in %s", len(keys), keys_path)
    sum_of_keys = file_sum(keys_path, 0, len(keys) * KEY.itemsize)
    with writing_beside(path) as beside:
        sort_keys(keys, beside)
        with open(beside, "ab") as file:
            file.write(TRAILER.pack(MARK, len(keys), sum_of_keys, file_sum(beside)))
    kept = _read(path, keys_path, keys)
    return sort_keys(keys) if kept is None else kept  # None: keys were struck meanwhile
