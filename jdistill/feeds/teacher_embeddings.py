"""The teacher's embeddings of a corpus, asked once and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.data.text.stored_texts import ChosenTexts, JoinedTexts, take_texts
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.tokens import cache_folder
from jdistill.teachers.cache import AnswerCache, in_one_piece
from jdistill.teachers.embeddings import Teacher
from jdistill.teachers.fill import Answered, Unanswered, ask


class TeacherEmbeddings:
    """The teacher's vectors of a corpus, of each text as it is asked in the text's role, with a cache for each. What a cache lacks is
    asked for when it is looked at first."""

    def __init__(self, cfg: ConfigDict, corpus: Corpus, teacher: Teacher):
        self._folder, self._corpus, self._teacher = cache_folder(cfg), corpus, teacher
        self._in_role: dict[str, Teacher] = {}
        self._caches: dict[str, AnswerCache] = {}
        self._train: dict[str, Answered] = {}
        self._held_out: np.ndarray | None = None
        self._of_pairs: np.ndarray | None = None

    def _asked(self, role: str) -> Teacher:
        if role not in self._in_role:
            self._in_role[role] = self._teacher.in_role(role)
        return self._in_role[role]

    def _cache(self, role: str) -> AnswerCache:
        """The cache of a role, with what has come to it since it was opened first."""
        if role in self._caches:
            self._caches[role] = self._caches[role].opened_again()
        else:
            self._caches[role] = self._asked(role).cache(self._folder, writer=sharding.process_index())
        return self._caches[role]

    def _ask(self, texts: Sequence[str], role: str) -> Answered:
        answered = ask(self._cache(role), texts, in_one_piece(self._asked(role).answer), "teacher answers")
        self._asked(role).release()  # training has the devices' memory for itself
        return answered

    def _by_role(self, held_out: bool = False, once: bool = False) -> dict[str, Sequence[str]]:
        """What is asked for the training or held-out texts of each role, in their order; of one alone all. once: without translations,
        whose sources are among the others."""
        texts = self._corpus.held_out if held_out else self._corpus.asked_texts
        ranges = self._corpus.role_rows(held_out)
        if len(ranges) == 1:
            return {ranges[0][0]: texts}
        if once:
            ranges = [of for of, rows in zip(ranges, self._corpus.sources, strict=True) if not rows.translated]
        return {
            role: JoinedTexts([texts[start:stop] for other, start, stop in ranges if other == role])
            for role in dict.fromkeys(role for role, _, _ in ranges)
        }

    def _places(self, rows: np.ndarray, held_out: bool = False) -> Iterator[tuple[str, np.ndarray]]:
        """(role, which of the rows are of it) for each role that has some, int64 [n]."""
        ranges = self._corpus.role_rows(held_out)
        range_of = np.searchsorted([stop for _, _, stop in ranges], rows, side="right")
        roles = [role for role, _, _ in ranges]
        for role in dict.fromkeys(roles):
            here = np.flatnonzero(np.isin(range_of, [k for k, other in enumerate(roles) if other == role]))
            if len(here):
                yield role, here

    def first(self, count: int, held_out: bool) -> tuple[Sequence[str], np.ndarray]:
        """What is asked for the first training or held-out texts, and their vectors, float32 [n, D]. All processes of a run must call it
        together."""
        texts = (self._corpus.held_out if held_out else self._corpus.asked_texts)[:count]
        return texts, self._vectors(texts, held_out)

    def _vectors(self, texts: Sequence[str], held_out: bool) -> np.ndarray:
        """The vectors of the first of the training or held-out texts, float32 [N, D]."""
        vectors = np.empty((len(texts), self._teacher.width), np.float32)
        for role, here in self._places(np.arange(len(texts)), held_out):
            vectors[here] = self._ask(texts if len(here) == len(texts) else take_texts(texts, here), role).read()
        return vectors

    def lacking(self, held_out: bool) -> int:
        """How many of the training or held-out texts have no answer yet."""
        return sum(self._cache(role).lacks(texts) for role, texts in self._by_role(held_out, once=True).items())

    def ask_for(self, rows: np.ndarray | None) -> None:
        """Asks for what the cache lacks of these rows of corpus.train, int64 [n]; None: of all. All processes call it together."""
        asked = self._corpus.asked_texts
        texts_of = (
            self._by_role()
            if rows is None
            else {role: ChosenTexts(asked, rows[here]) for role, here in self._places(rows)}
        )
        for role, texts in texts_of.items():
            self._train[role] = replace(self._ask(texts, role), keys=asked)

    def train(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of these rows of corpus.train, float32 [len(rows), D].

        Those that nobody has asked for yet are asked for; of several processes, all of the corpus at the first look, which all of them
        take.
        """
        if sharding.process_count() > 1 and not self._train:
            self.ask_for(None)
        vectors = np.empty((len(rows), self._teacher.width), np.float32)
        for role, here in self._places(rows):
            vectors[here] = self._of_role(role, rows[here])
        return vectors

    def _of_role(self, role: str, rows: np.ndarray) -> np.ndarray:
        if role not in self._train:
            self.ask_for(rows)
        try:
            return self._train[role].read(rows)
        except Unanswered as error:
            if sharding.process_count() > 1:
                raise
            self.ask_for(error.rows)
            return self._train[role].read(rows)

    def held_out(self) -> np.ndarray:
        """The vectors of corpus.held_out, float32 [N, D]. All processes of a run must call it the first time."""
        if self._held_out is None:
            self._held_out = self._vectors(self._corpus.held_out, held_out=True)
            self._of_pairs = self._pair_vectors()
        return self._held_out

    def held_out_pairs(self) -> np.ndarray:
        """The vectors of the sources of corpus.held_out_pairs, float32 [P, D]; called as held_out."""
        self.held_out()
        assert self._of_pairs is not None
        return self._of_pairs

    def _pair_vectors(self) -> np.ndarray:
        pairs = self._corpus.held_out_pairs
        vectors = np.empty((len(pairs), self._teacher.width), np.float32)
        for role in dict.fromkeys(role for _, role in pairs):
            here = [k for k, (_, other) in enumerate(pairs) if other == role]
            vectors[here] = self._ask([pairs[k][0].source for k in here], role).read()
        return vectors
