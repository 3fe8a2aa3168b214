"""Questions to a teacher, shared out over the processes of a run, whose answers all of them find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.mapped import slices_of
from jdistill.core.progress import log
from jdistill.core.shared_folders import awaited
from jdistill.core.sorted_keys import keys_at
from jdistill.teachers.cache import (
    CHUNK,
    AnswerCache,
    DamagedRows,
    Pieces,
)


class Unanswered(UserError):
    """Keys that a cache has no answer to.

    Args:
      folder: of the cache.
      rows: int64, numbers of the keys.
      what: the answers, for messages.
    """

    def __init__(self, folder: Path, rows: np.ndarray, what: str):
        super().__init__(f"{folder} lacks {len(rows)} answers ({what}); run the command again")
        self.rows = rows


@dataclass(frozen=True)
class Answered:
    """The answers to a list of keys, which stay on disk. What turns out damaged as it is read is asked again, by this process.

    Args:
      cache: where they are kept.
      keys: N texts, or keys of pairs (pair_keys). Where the answer to one stands is looked up as it is read.
      answer_pieces: gives answers that are asked for again.
      what: the answers, for messages.
    """

    cache: AnswerCache
    keys: Sequence[str]
    answer_pieces: Pieces
    what: str

    def read(self, rows: np.ndarray | None = None, columns: slice = slice(None)) -> np.ndarray:
        """The answers to some keys.

        Args:
          rows: int64 [n], numbers of keys; None: all.
          columns: of the answers.

        Returns: [n, width], or as many columns, of the cache's type.

        Raises: Unanswered where the cache has none.
        """
        rows = np.arange(len(self.keys)) if rows is None else rows
        cache_rows = self._cache_rows(rows)
        try:
            return self.cache.gather(cache_rows, columns)
        except DamagedRows as damaged:
            log.warning(
                "%s: %d answers in %s are damaged, and asked again", self.what, len(damaged.rows), self.cache.folder
            )
            again = [self.keys[i] for i in rows[np.isin(cache_rows, damaged.rows)].tolist()]
            self.cache.strike(damaged.rows)
            chunks = [again[block] for block in slices_of(len(again), CHUNK)]
            self.cache.fill_by_piece(chunks, self.answer_pieces, self.what)
            return self.cache.gather(self._cache_rows(rows), columns)

    def _cache_rows(self, rows: np.ndarray) -> np.ndarray:
        cache_rows = self.cache.find(keys_at(self.keys, rows))
        if len(lacking := rows[cache_rows < 0]):
            raise Unanswered(self.cache.folder, lacking, self.what)
        return cache_rows


def ask(
    cache: AnswerCache,
    keys: Sequence[str],
    answer_pieces: Pieces,
    what: str,
    chunk: int = CHUNK,
    alone: bool = False,
    order: np.ndarray | None = None,
) -> Answered:
    """The answers to `keys`; those that are not in the cache are asked for.

    All processes of a run call it with the same keys, each asks for its share and waits for the others.

    Args:
      cache: of this process (sharding.process_index()).
      keys: N texts, or keys of pairs (pair_keys).
      answer_pieces: gives the answers of a chunk of keys.
      what: the answers, for messages.
      chunk: keys asked for at a time.
      alone: this process asks for all, as the first does while the others wait for its results.
      order: int64 [N], in which they are asked; None: as they are.

    Raises: UserError where answers are missing after all, and as AnswerCache.fill.
    """
    asked = keys if order is None else [keys[i] for i in order]
    # Shared out by position, on which all processes agree: what each finds missing may differ, as others fill the same cache meanwhile.
    chunks = [asked[block] for block in slices_of(len(asked), chunk)]
    own = chunks if alone else chunks[sharding.process_index() :: sharding.process_count()]
    found_all = not cache.fill_by_piece(own, answer_pieces, what)
    if not alone:
        # All have asked for their shares when all have come here, and those are all keys.
        sharding.barrier(what)
        found_all = not sharding.any_process(not found_all)
        cache.reload()
    if not found_all and (lacking := cache.lacks(keys)) and (alone or awaited(lambda: _whole(cache, keys)) is None):
        raise UserError(f"{cache.folder} lacks {lacking} answers after filling ({what}); run the command again")
    return Answered(cache, keys, answer_pieces, what)


def _whole(cache: AnswerCache, keys: Sequence[str]) -> bool | None:
    """Read again, for what another process wrote; None while it lacks answers."""
    cache.reload()
    return None if cache.lacks(keys) else True
