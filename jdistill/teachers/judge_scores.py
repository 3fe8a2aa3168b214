"""What a judge says of pairs, asked once and kept on disk by content (D2LLM, 3.1.1; the authors' code keeps it by step and rank)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from jdistill.core import sharding
from jdistill.core.progress import log
from jdistill.teachers.cache import AnswerCache
from jdistill.teachers.fill import Answered, ask
from jdistill.teachers.judge import Judge
from jdistill.teachers.pair_keys import pair_keys, pairs_of_keys

PAIRS_PER_CHUNK = 256  # pairs that are sorted by length together; what a killed scoring run loses is one batch of them


class Scores:
    """What a judge says of pairs, asked once and kept by content: y in float16, and z as two of them, high and what it lacks.

    Args:
      judge: who is asked.
      folder: of the cache.
    """

    def __init__(self, judge: Judge, folder: Path):
        self.judge = judge
        config = judge.model.config
        about: dict[str, object] = {"judge": judge.model.source, "template": judge.template}
        own = folder / "judge" / judge.fingerprint()
        others = sum(path.is_dir() for path in own.parent.glob("*")) if not own.exists() else 0
        if others:
            log.info("%s keeps scores of %d other models or instructions, which are not used", own.parent, others)
        writer = sharding.process_index()
        self._cache = AnswerCache(own, 2 + config.hidden_size, "float16", about=about, writer=writer)

    def of(self, queries: Sequence[str], passages: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """What the judge says of pairs; what is not in the cache is asked.

        Args:
          queries, passages: N strings each.

        Returns: z float32 [N], y float16 [N, D].
        """
        return at(self.ask(queries, passages))

    def ask(self, queries: Sequence[str], passages: Sequence[str], alone: bool = False) -> Answered:
        """The answers to the pairs, for `at` and `logits_at`; what is not in the cache is asked, and kept batch by batch.

        All processes of a run call it together (fill.ask), or one of them alone.

        Args:
          queries, passages: N strings each.
          alone: as fill.ask has it.
        """
        keys = pair_keys(queries, passages)

        def judge_batches(asked: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for rows, z, y in self.judge.by_batch(*pairs_of_keys(asked)):
                high = z.astype(np.float16)
                both = (high[:, None], (z - high)[:, None].astype(np.float16), y.astype(np.float16))
                yield rows, np.concatenate(both, axis=1)

        # The pairs of a query together, which share its beginning; the longest queries first, so that a chunk has few shapes to compile.
        order = sorted(range(len(keys)), key=lambda i: (-len(queries[i]), queries[i], -len(passages[i])))
        answered = ask(
            self._cache, keys, judge_batches, "judged pairs", PAIRS_PER_CHUNK, alone, np.array(order, np.int64)
        )
        self.judge.model.release()  # training has the devices' memory for itself
        return answered


def at(asked: Answered, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What the judge says of some pairs.

    Args:
      rows: int64 [n], numbers of pairs; None: all.

    Returns: z float32 [n], y float16 [n, D].
    """
    rows_read = asked.read(rows)
    return _whole(rows_read), rows_read[:, 2:]


def logits_at(asked: Answered, rows: np.ndarray | None = None) -> np.ndarray:
    """z alone, float32 [n], of some pairs; rows: as of `at`."""
    return _whole(asked.read(rows, slice(0, 2)))


def _whole(kept: np.ndarray) -> np.ndarray:
    """z from the two float16 that it is kept as."""
    return kept[:, 0].astype(np.float32) + kept[:, 1].astype(np.float32)
