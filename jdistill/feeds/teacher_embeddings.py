"""The teacher's embeddings of a corpus, asked once and kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.tokens import cache_folder
from jdistill.teachers.cache import in_one_piece
from jdistill.teachers.embeddings import Teacher
from jdistill.teachers.fill import Answered, ask


class TeacherEmbeddings:
    """The teacher's vectors of a corpus. The first look at a side of it asks the teacher for what the cache lacks."""

    def __init__(self, cfg: ConfigDict, corpus: Corpus, teacher: Teacher):
        self._folder, self._corpus, self._teacher = cache_folder(cfg), corpus, teacher
        self._train: Answered | None = None
        self._held_out: np.ndarray | None = None

    def _ask(self, texts: Sequence[str]) -> Answered:
        cache = self._teacher.cache(self._folder, writer=sharding.process_index())
        return ask(cache, texts, in_one_piece(self._teacher.answer), "teacher answers")

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of some texts, float32 [N, D]. All processes of a run must call it together."""
        return self._ask(texts).read()

    def train(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of these rows of corpus.train, float32 [len(rows), D]. All processes must call it the first time."""
        if self._train is None:
            self._train = self._ask(self._corpus.train)
        return self._train.read(rows)

    def held_out(self) -> np.ndarray:
        """The vectors of corpus.held_out, float32 [N, D]. All processes of a run must call it the first time."""
        if self._held_out is None:
            self._held_out = self._ask(self._corpus.held_out).read()
        return self._held_out
