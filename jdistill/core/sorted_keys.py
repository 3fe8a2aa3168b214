"""Keys of 16 bytes, hashes of texts: sorted in bounded memory, found by binary search, and those that come again told.

What is sorted is a key's first half with the number of its row. The whole key is compared where it stands, so that an index that is
damaged, or older than the keys, may miss a key but never gives a row that has another.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from jdistill.core.files import naming
from jdistill.core.mapped import release, rows_of, slices_of

KEY = np.dtype("V16")
BUCKET_ROWS = 1 << 18  # keys that are sorted at once, a few MB
WITHOUT_ALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)  # what a file system that cannot says
HALF, ROW = np.dtype("<u8"), np.dtype("<i8")


@runtime_checkable
class KeyedTexts(Protocol):
    """Texts whose keys are kept beside them."""

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        """The keys of these texts, or of all, [N] of 16 bytes."""


def keys_of_texts(texts: Iterable[str] | KeyedTexts) -> np.ndarray:
    """The key of each text, a hash of 16 bytes."""
    if isinstance(texts, KeyedTexts):
        return texts.text_keys()
    return np.frombuffer(b"".join([hashlib.blake2b(t.encode(), digest_size=16).digest() for t in texts]), KEY)


def keys_at(texts: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """The keys of some texts, [len(rows)] of 16 bytes; rows: int64."""
    return texts.text_keys(rows) if isinstance(texts, KeyedTexts) else keys_of_texts(texts[i] for i in rows.tolist())


def halves(keys: np.ndarray) -> np.ndarray:
    """Keys as pairs of numbers, uint64 [N, 2], without a copy."""
    return keys.view(HALF).reshape(-1, 2)


@dataclass(frozen=True)
class SortedKeys:
    """The rows of keys in the order of the keys' first halves, and among equal ones in their own.

    Args:
      keys: [N] of 16 bytes.
      first: uint64 [n], n <= N, the first half of each of the first n keys, rising.
      rows: int64 [n], where it stands in `keys`.
    """

    keys: np.ndarray
    first: np.ndarray
    rows: np.ndarray

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """The last row of each key, int64 [len(wanted)]; -1 of one that is not there."""
        row_of = np.full(len(wanted), -1, np.int64)
        if len(self.first):
            for part in slices_of(len(wanted), BUCKET_ROWS):
                row_of[part] = self._find(halves(np.ascontiguousarray(wanted[part])))
        return row_of

    def _find(self, wanted: np.ndarray) -> np.ndarray:
        row_of = np.full(len(wanted), -1, np.int64)
        order = np.argsort(wanted[:, 0])  # neighbours then lie in the same pages
        place = np.searchsorted(self.first, wanted[order, 0], side="right") - 1
        while len(order):  # once, but for keys that share a half, or that were struck
            there = (place >= 0) & (self.first[place] == wanted[order, 0])
            order, place = order[there], place[there]
            rows = self.rows[place]
            same = (halves(self.keys[rows]) == wanted[order]).all(1)
            row_of[order[same]] = rows[same]
            order, place = order[~same], place[~same] - 1
        return row_of

    def repeats(self) -> np.ndarray:
        """Whether a key of an earlier row comes again, bool [n], by rows."""
        again = np.zeros(len(self.first), bool)
        start = 0
        while start < len(self.first):
            stop = min(start + BUCKET_ROWS, len(self.first))
            if stop < len(self.first):  # not within a run of equal halves
                stop = int(np.searchsorted(self.first, self.first[stop - 1], side="right"))
            self._mark_repeats(slice(start, stop), again)
            start = stop
            release(self.first, self.rows, self.keys)
        return again

    def _mark_repeats(self, part: slice, again: np.ndarray) -> None:
        first, rows = self.first[part], self.rows[part]
        of_run = np.flatnonzero(np.concatenate([[False], first[1:] == first[:-1]]))
        if not len(of_run):
            return
        run = np.cumsum(
            np.concatenate([[True], first[1:] != first[:-1]])
        )  # which of the runs of equal halves a row is in
        among = np.unique(np.concatenate([of_run, of_run - 1]))
        whole = halves(rows_of(self.keys, rows[among]))
        # By run and second half, and then by row: stable, since rows rise within a run.
        order = np.lexsort((whole[:, 1], run[among]))
        same = (whole[order[1:]] == whole[order[:-1]]).all(1)
        again[rows[among[order[1:][same]]]] = True


def sort_keys(keys: np.ndarray, into: Path | None = None) -> SortedKeys:
    """Sorts keys, in memory or into a file.

    Args:
      keys: [N] of 16 bytes, memory-mapped where they are many.
      into: a file that is written, of 16 bytes a key; then memory holds but a bucket of keys at a time.

    Raises: OSError where the disk lacks the room.
    """
    n = len(keys)
    if into is None or not n:
        first = np.array(halves(keys)[:, 0])
        rows = np.argsort(first, kind="stable")
        return SortedKeys(keys, first[rows], rows)
    _make_room(into, n * (HALF.itemsize + ROW.itemsize))
    index = SortedKeys(keys, np.memmap(into, HALF, "r+", 0, (n,)), np.memmap(into, ROW, "r+", n * HALF.itemsize, (n,)))
    bits = max(0, (2 * n // BUCKET_ROWS).bit_length() - 1)  # buckets of BUCKET_ROWS at most, about: keys are hashes
    starts = _deal_to_buckets(index, bits)
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        order = np.argsort(index.first[start:stop], kind="stable")
        index.first[start:stop] = index.first[start:stop][order]
        index.rows[start:stop] = index.rows[start:stop][order]
        release(index.first, index.rows)
    return index


def _make_room(path: Path, size: int) -> None:
    """Makes a file of so many bytes with its room on the disk: a write to a mapped page that gets none ends the process, without a word."""
    with naming(path), open(path, "w+b") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in WITHOUT_ALLOCATION:
                    raise
        file.truncate(size)


def _deal_to_buckets(index: SortedKeys, bits: int) -> np.ndarray:
    """Writes each key, with its row, to the bucket that its first bits name; where the buckets begin, int64 [2**bits + 1]."""
    n, shift = len(index.keys), np.uint64(64 - bits) if bits else np.uint64(0)

    def bucket_of(first: np.ndarray) -> np.ndarray:
        return (first >> shift).astype(np.int64) if bits else np.zeros(len(first), np.int64)

    counts = np.zeros(1 << bits, np.int64)
    for part in slices_of(n, BUCKET_ROWS):
        counts += np.bincount(bucket_of(halves(index.keys[part])[:, 0]), minlength=len(counts))
        release(index.keys)
    starts = np.concatenate([[0], np.cumsum(counts)])
    free = starts[:-1].copy()
    for part in slices_of(n, BUCKET_ROWS):
        first = np.array(halves(index.keys[part])[:, 0])
        bucket = bucket_of(first)
        order = np.argsort(bucket, kind="stable")
        own = np.bincount(bucket, minlength=len(counts))
        within = np.arange(len(order)) - np.repeat(np.cumsum(own) - own, own)
        place = free[bucket[order]] + within
        index.first[place], index.rows[place] = first[order], part.start + order
        free += own
        release(index.first, index.rows, index.keys)
    return starts
