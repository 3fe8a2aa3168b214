"""The teacher's embeddings of a corpus, asked once and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.data.text.stored_texts import take_texts
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.tokens import cache_folder
from jdistill.teachers.cache import in_one_piece
from jdistill.teachers.embeddings import Teacher
from jdistill.teachers.fill import Answered, Unanswered, ask


class TeacherEmbeddings:
    """The teacher's vectors of a corpus. What the cache lacks is asked for when it is looked at first."""

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

    def ask_for(self, rows: np.ndarray | None) -> None:
        """Asks for what the cache lacks of these rows of corpus.train, int64 [n]; None: of all. All processes call it together."""
        texts = self._corpus.train if rows is None else take_texts(self._corpus.train, rows)
        self._train = replace(self._ask(texts), keys=self._corpus.train)

    def train(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of these rows of corpus.train, float32 [len(rows), D].

        Those that nobody has asked for yet are asked for; of several processes, all of the corpus at the first look, which all of them
        take.
        """
        if self._train is None:
            self.ask_for(None if sharding.process_count() > 1 else rows)
        assert self._train is not None
        try:
            return self._train.read(rows)
        except Unanswered as error:
            if sharding.process_count() > 1:
                raise
            self.ask_for(error.rows)
            return self._train.read(rows)

    def held_out(self) -> np.ndarray:
        """The vectors of corpus.held_out, float32 [N, D]. All processes of a run must call it the first time."""
        if self._held_out is None:
            self._held_out = self._ask(self._corpus.held_out).read()
        return self._held_out
