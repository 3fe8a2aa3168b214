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

BETWEEN = "\x1f"  # query and passage in a cache's key
CHUNK = 256  # pairs that are sorted by length together; what a killed scoring run loses is one batch of them


class Scores:
    """What a judge says of pairs, asked once and kept by content: y in float16, and z as two of them, high and what it lacks."""

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
        """(z float32 [N], y float16 [N, D]) of the pairs; what is not known yet is asked."""
        return at(self.ask(queries, passages))

    def ask(self, queries: Sequence[str], passages: Sequence[str], alone: bool = False) -> Answered:
        """The answers to the pairs, for `at` and `logits_at`; what is not known yet is asked, and kept batch by batch. All processes of a
        run call it together (shared_answers.ask), or one of them alone."""
        # A query that held the separator would be judged as another pair.
        keys = [q.replace(BETWEEN, " ") + BETWEEN + p for q, p in zip(queries, passages, strict=True)]

        def answers(rows: list[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            pairs = [row.split(BETWEEN, 1) for row in rows]
            for those, z, y in self.judge.by_batch([query for query, _ in pairs], [passage for _, passage in pairs]):
                high = z.astype(np.float16)
                both = (high[:, None], (z - high)[:, None].astype(np.float16), y.astype(np.float16))
                yield those, np.concatenate(both, axis=1)

        # The pairs of a query together, which share its beginning; the longest queries first, so that a chunk has few shapes to compile.
        order = sorted(range(len(keys)), key=lambda i: (-len(queries[i]), queries[i], -len(passages[i])))
        return ask(self._cache, keys, answers, "judged pairs", CHUNK, alone, np.array(order, np.int64))


def at(asked: Answered, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(z float32 [N], y float16 [N, D]) of these pairs, by their number; None: of all."""
    found = asked.read(rows)
    return _whole(found), found[:, 2:]


def logits_at(asked: Answered, rows: np.ndarray | None = None) -> np.ndarray:
    """z alone, float32 [N]."""
    return _whole(asked.read(rows, slice(0, 2)))


def _whole(found: np.ndarray) -> np.ndarray:
    """z from the two float16 that it is kept as."""
    return found[:, 0].astype(np.float32) + found[:, 1].astype(np.float32)
