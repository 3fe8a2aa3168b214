"""Which texts of a fill have no answer yet, each once, and which answers of a cache are to other texts: in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core.mapped import map_rows
from jdistill.core.progress import progress
from jdistill.core.scratch import scratch_folder
from jdistill.core.sorted_keys import BUCKET_ROWS, KEY, keys_of_texts, sort_keys

LOOKED_UP = 1 << 17  # keys that are looked up at once, about
TOLD_ABOVE = 1 << 22  # texts, which are looked up in some ten seconds


@dataclass(frozen=True)
class Missing:
    """What a fill is to ask for.

    Args:
      masks: of each chunk, bool [its texts]: the first of the texts that have no answer and are alike.
      wanted: bool [rows of the cache]: the answers that the fill would have asked for, had they not been there.
    """

    masks: list[np.ndarray]
    wanted: np.ndarray

    @property
    def count(self) -> int:
        """Texts to be asked for."""
        return sum(int(mask.sum()) for mask in self.masks)


def find_missing(
    find: Callable[[np.ndarray], np.ndarray], rows: int, chunks: Sequence[Sequence[str]], folder: Path
) -> Missing:
    """The texts of chunks that have no answer.

    Args:
      find: keys [n] of 16 bytes -> the rows of their answers int64 [n], -1 where there is none.
      rows: of the cache.
      folder: where the keys of many missing texts are sorted.
    """
    wanted, masks, total = np.zeros(rows, bool), [], sum(map(len, chunks))
    telling = progress(f"looking for answers in {folder}", total, "texts") if total > TOLD_ABOVE else nullcontext()
    with _GrowingKeys(folder) as missing, telling as meter:
        for keys, sizes in _key_groups(chunks):
            if meter:
                meter.advance(len(keys))
            cache_rows = find(keys)
            lacking = cache_rows < 0
            wanted[cache_rows[~lacking]] = True
            missing.add(keys[lacking])
            masks += np.split(lacking, np.cumsum(sizes)[:-1])
        again = missing.repeats()
    start = 0
    for mask in masks:
        rows_missing = np.flatnonzero(mask)
        mask[rows_missing[again[start : start + len(rows_missing)]]] = False
        start += len(rows_missing)
    return Missing(masks, wanted)


class _GrowingKeys:
    """Keys that come piece by piece: in memory while they are few, then in a file of a folder that is taken away at the end."""

    def __init__(self, folder: Path):
        self._folder, self._stack = folder, ExitStack()
        self._held = [np.empty(0, KEY)]
        self._path: Path | None = None

    def __enter__(self) -> _GrowingKeys:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, keys: np.ndarray) -> None:
        self._held.append(keys)
        if sum(map(len, self._held)) > BUCKET_ROWS:
            if self._path is None:
                self._path = self._stack.enter_context(scratch_folder(self._folder)) / "keys"
            self._append(self._path)

    def _append(self, path: Path) -> None:
        with open(path, "ab") as file:
            file.write(np.concatenate(self._held).tobytes())
        self._held = [np.empty(0, KEY)]

    def repeats(self) -> np.ndarray:
        """Whether a key was there before, bool, in the order in which they came."""
        if self._path is None:
            return sort_keys(np.concatenate(self._held)).repeats()
        self._append(self._path)
        keys = map_rows(self._path, KEY, self._path.stat().st_size // KEY.itemsize)
        return sort_keys(keys, self._path.with_name("sorted")).repeats()


def _key_groups(chunks: Sequence[Sequence[str]]) -> Iterator[tuple[np.ndarray, list[int]]]:
    """The keys of several chunks together, and how many each has."""
    parts: list[np.ndarray] = []
    for number, texts in enumerate(chunks, 1):
        parts.append(keys_of_texts(texts))
        if sum(map(len, parts)) >= LOOKED_UP or number == len(chunks):
            yield np.concatenate(parts), list(map(len, parts))
            parts = []
