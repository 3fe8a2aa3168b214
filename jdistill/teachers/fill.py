"""Questions to a teacher, shared out over the processes of a run, whose answers all of them find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.teachers.cache import (
    CHUNK,
    AnswerCache,
    DamagedRows,
    Pieces,
)


@dataclass
class Answered:
    """The answers to a list of keys, which stay on disk. What turns out damaged as it is read is asked again, by this process.

    Args:
      cache: where they are kept.
      keys: N texts, or keys of pairs (cache.pair_keys).
      cache_rows: int64 [N], the row of each key's answer in the cache.
      answer_pieces: gives answers that are asked for again.
      what: the answers, for messages.
    """

    cache: AnswerCache
    keys: Sequence[str]
    cache_rows: np.ndarray
    answer_pieces: Pieces
    what: str

    def read(self, rows: np.ndarray | None = None, columns: slice = slice(None)) -> np.ndarray:
        """The answers to some keys.

        Args:
          rows: int64 [n], numbers of keys; None: all.
          columns: of the answers.

        Returns: [n, width], or as many columns, of the cache's type.
        """
        rows = np.arange(len(self.keys)) if rows is None else rows
        try:
            return self.cache.gather(self.cache_rows[rows], columns)
        except DamagedRows as damaged:
            log.warning(
                "%s: %d answers in %s are damaged, and asked again", self.what, len(damaged.rows), self.cache.folder
            )
            self._ask_again(damaged.rows)
            return self.cache.gather(self.cache_rows[rows], columns)

    def _ask_again(self, damaged: np.ndarray) -> None:
        again = [self.keys[i] for i in np.flatnonzero(np.isin(self.cache_rows, damaged)).tolist()]
        self.cache.strike(damaged)
        self.cache.fill_by_piece(
            [again[start : start + CHUNK] for start in range(0, len(again), CHUNK)], self.answer_pieces, self.what
        )
        self.cache_rows = self.cache.rows(self.keys)  # all of them: a part that grew moves those behind it


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
      keys: N texts, or keys of pairs (cache.pair_keys).
      answer_pieces: gives the answers of a chunk of keys.
      what: the answers, for messages.
      chunk: keys asked for at a time.
      alone: this process asks for all, as the first does while the others wait for its results.
      order: int64 [N], in which they are asked; None: as they are.

    Raises: UserError where answers are missing after all, and as AnswerCache.fill.
    """
    asked = keys if order is None else [keys[i] for i in order]
    # Shared out by position, on which all processes agree: what each finds missing may differ, as others fill the same cache meanwhile.
    chunks = [asked[start : start + chunk] for start in range(0, len(asked), chunk)]
    own = chunks if alone else chunks[sharding.process_index() :: sharding.process_count()]
    cache.fill_by_piece(own, answer_pieces, what)
    if not alone:
        sharding.barrier(what)
        cache.reload()
    cache_rows = cache.rows(keys)
    if (cache_rows < 0).any():
        raise UserError(
            f"{cache.folder} lacks {(cache_rows < 0).sum()} answers after filling ({what}); run the command again"
        )
    return Answered(cache, keys, cache_rows, answer_pieces, what)
