"""How far ahead of the steps the teacher answers: before them all, or for so many texts at a time; never what no step reads."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.train.dataset import BatchOrder
from jdistill.train.loop import total_steps

# Of an epoch of each text once: where the next answers are of more than this share, all texts are asked, which needs no list of them.
MOST_OF_AN_EPOCH = 0.5
SORTED_SHARE = 64  # texts of which one is asked for, or fewer: sorting those is less work than marking all


def _window_steps(cfg: ConfigDict, batches: BatchOrder) -> int:
    """Steps whose texts are asked for at a time."""
    return math.ceil(cfg.answers_ahead / cfg.batch_size) or total_steps(cfg, batches.steps_per_epoch)


def asks_for_all(cfg: ConfigDict, batches: BatchOrder, every_row: bool) -> bool:
    """Whether all texts are asked for before the first step, those that no step reads too. Arguments as of AnswersAhead."""
    window = min(_window_steps(cfg, batches), total_steps(cfg, batches.steps_per_epoch))
    # Of weighted sources an epoch may draw a part, each another: how many of their texts are read is not told by the steps.
    most_of_them = batches.of_epoch is None and window > MOST_OF_AN_EPOCH * batches.steps_per_epoch
    return every_row or sharding.process_count() > 1 or most_of_them


def texts_asked(cfg: ConfigDict, batches: BatchOrder, every_row: bool) -> int:
    """How many texts' answers a stage asks for, at most: for a plan. Arguments as of AnswersAhead."""
    of_steps = total_steps(cfg, batches.steps_per_epoch) * cfg.batch_size
    texts = len(batches.lengths)
    return texts if asks_for_all(cfg, batches, every_row) else min(of_steps, texts)


class AnswersAhead:
    """Asks for the answers to the texts of the next batches when the first of them is come to.

    Args:
      cfg: max_steps and epochs, which say how far the stage goes, batch_size, and answers_ahead, texts at a time; 0: all at once.
      batches: the order of the texts.
      ask_for: asks for the answers to some rows, int64 [n]; None: all. Of several processes all call it together, and for all rows:
        the steps of one must not wait for another that asks.
      every_row: whether a batch reads the answers to other texts than its own.
    """

    def __init__(
        self, cfg: ConfigDict, batches: BatchOrder, ask_for: Callable[[np.ndarray | None], None], every_row: bool
    ):
        self._batches, self._ask_for, self._batch_size = batches, ask_for, cfg.batch_size
        self._steps = total_steps(cfg, batches.steps_per_epoch)
        self._window, self._all = _window_steps(cfg, batches), asks_for_all(cfg, batches, every_row)
        self._asked = range(0)  # the steps whose texts have been asked for

    def reach(self, step: int) -> None:
        """Has the texts of this step's batch answered, and of those after it."""
        if step in self._asked:
            return
        if self._all:
            self._asked = range(0, np.iinfo(np.int64).max)
            self._ask_for(None)
            return
        # Windows begin where they would in a run that was never stopped, so that a resumed one asks for the same texts at a time.
        first = step // self._window * self._window
        last = max(step + 1, min(first + self._window, self._steps))
        self._ask_for(self._texts_of(range(first, last)))
        self._asked = range(first, last)

    def _texts_of(self, steps: range) -> np.ndarray:
        """The texts of these steps' batches, once each and rising, int64: of few by sorting them, of many by a mark for every text."""
        batches, total = map(self._batches.members, steps), len(self._batches.lengths)
        if len(steps) * self._batch_size * SORTED_SHARE < total:
            return np.unique(np.concatenate(list(batches)))
        read = np.zeros(total, bool)
        for rows in batches:
            read[rows] = True
        return np.flatnonzero(read)
