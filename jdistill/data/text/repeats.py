"""Texts that several sources have in one role: which rows come again, found by their sorted keys in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jdistill.core.mapped import map_rows, slices_of
from jdistill.core.scratch import scratch_folder
from jdistill.core.sorted_keys import BUCKET_ROWS, KEY, keys_at, sort_keys

NO_ROWS = np.empty(0, np.int64)


def repeated_rows(
    sources: Sequence[Sequence[str]], roles: Sequence[str], folder: Path, within: bool = False
) -> list[np.ndarray]:
    """Of each source the rows whose text a source before it has in the same role, int64, rising.

    Args:
      sources: each of distinct texts, unless `within` says that it may repeat its own.
      roles: of each source.
      folder: where many keys are sorted.
    """
    repeated = [NO_ROWS] * len(sources)
    for role in set(roles):
        numbers = [number for number, other in enumerate(roles) if other == role]
        if within or len(numbers) > 1:
            again = _repeats([sources[number] for number in numbers], folder)
            ends = np.cumsum([len(sources[number]) for number in numbers])
            for number, part in zip(numbers, np.split(again, ends[:-1]), strict=True):
                repeated[number] = np.flatnonzero(part)
    return repeated


def _repeats(sources: Sequence[Sequence[str]], folder: Path) -> np.ndarray:
    """Whether a text has come before, bool, of all sources one after another."""
    with scratch_folder(folder) as scratch:
        path = scratch / "keys"
        with open(path, "wb") as file:
            for texts in sources:
                for block in slices_of(len(texts), BUCKET_ROWS):
                    file.write(keys_at(texts, np.arange(block.start, block.stop)).tobytes())
        keys = map_rows(path, KEY, sum(map(len, sources)))
        return sort_keys(keys, path.with_name("sorted") if len(keys) > BUCKET_ROWS else None).repeats()
