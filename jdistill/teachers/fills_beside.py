"""What other processes answer in a cache while this one fills it, so that each text is asked once: three seeds, say, side by side.

The first of them goes through the texts in their order, each further one, and each that fills a cache in a store, in an order of its own: they
seldom ask for the same at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from jdistill.core.sorted_keys import KEY, keys_of_texts, sort_keys
from jdistill.teachers.cache_parts import OwnPart, Part, RowType, count_whole_rows

REMEMBERED = 1 << 22  # keys of theirs, the last ones, 130 MB with their order; what is forgotten may be asked twice
LOOKING = 0.02  # of the time of a fill, at most


class FillsBeside:
    """The answers that come to a cache from others during a fill.

    Args:
      folder, row_type: of the cache.
      parts: its parts as they were when it was looked up what is missing.
    """

    def __init__(self, folder: Path, row_type: RowType, parts: Sequence[Part]):
        self._folder, self._row_type = folder, row_type
        self._looked_at = {part.values_path: len(part) for part in parts}
        self._keys = sort_keys(np.empty(0, KEY))
        self._own: set[Path] = set()
        self._turn, self._next_look = 0, 0.0
        self.answered = 0  # of the texts to be asked for, by others

    def begin(self, own: OwnPart) -> None:
        """Notes a part that this fill writes itself; who had it before may have appended to it until now."""
        if not self._own:
            self._turn = own.turn
        self._remember([self._new_keys(own.values_path)])
        self._own.add(own.values_path)

    def still_missing(
        self, chunks: Sequence[Sequence[str]], masks: Sequence[np.ndarray], answered: Callable[[int], None]
    ) -> Iterator[list[str]]:
        """The texts to be asked for, a chunk after the other, without those that others have answered by then.

        Args:
          chunks: texts.
          masks: of each chunk, bool [its texts]: those that are to be asked for.
          answered: is told how many texts of a chunk others have answered.
        """
        numbers = np.random.default_rng(self._turn).permutation(len(chunks)) if self._turn else np.arange(len(chunks))
        for number in numbers.tolist():
            batch = [text for text, asks in zip(chunks[number], masks[number].tolist(), strict=True) if asks]
            if batch and self._look():
                lacking = self._keys.find(keys_of_texts(batch)) < 0
                self.answered += (there := int((~lacking).sum()))
                answered(there)
                batch = [text for text, lacks in zip(batch, lacking.tolist(), strict=True) if lacks]
            if batch:
                yield batch

    def _look(self) -> bool:
        """Whether any answer has come from others; reads the keys of those that have, not so often that it takes long."""
        start = time.monotonic()
        if start >= self._next_look:
            others = [path for path in self._folder.glob("part-*.values") if path not in self._own]
            self._remember([self._new_keys(path) for path in others])
            now = time.monotonic()
            self._next_look = now + (now - start) / LOOKING
        return len(self._keys.keys) > 0

    def _remember(self, new: list[np.ndarray]) -> None:
        together = self._keys.keys
        for keys in new:
            together = np.concatenate([together, keys])[-REMEMBERED:]
        if any(map(len, new)):
            self._keys = sort_keys(np.ascontiguousarray(together))

    def _new_keys(self, values_path: Path) -> np.ndarray:
        """The keys of the rows that have been appended to a part since it was looked at last, [n] of 16 bytes."""
        rows = count_whole_rows(values_path, self._row_type)
        # None where there are fewer than before, since another has cut off what was not whole.
        count = max(0, min(rows - self._looked_at.get(values_path, 0), REMEMBERED))
        self._looked_at[values_path] = rows
        if not count:
            return np.empty(0, KEY)
        return np.fromfile(values_path.with_suffix(".keys"), KEY, count, offset=(rows - count) * KEY.itemsize)
