"""What the feeds of a run share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from ml_collections import ConfigDict

from jdistill.encoder.encoder import Encoder
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
from jdistill.teachers.embeddings import Teacher

T = TypeVar("T")


@dataclass(frozen=True)
class Shared:
    """The config of a run, and what its feeds read their data by.

    Args:
      cfg: the run's config; a stage may have changed keys.
      teacher: who answers texts.
      start: the encoder that the student starts as.
      corpus: the run's text; empty where no feed reads any.
      embeddings: the teacher's of the corpus.
      evaluation_texts: every sentence of the configured evaluation sets, which nothing is trained on.
      whole_vocabulary: rows of the start's own token table, where `start` has but some of them; 0: it has all.
    """

    cfg: ConfigDict
    teacher: Teacher
    start: Encoder
    corpus: Corpus
    embeddings: TeacherEmbeddings
    evaluation_texts: Sequence[str]
    whole_vocabulary: int = 0
    _read: dict[Callable[[Shared], Any], Any] = field(default_factory=dict, repr=False, compare=False)

    def random_embeddings(self, rows: np.ndarray) -> np.ndarray:
        """In the place of the teacher's embeddings, for a dry run: float32 [len(rows), D]."""
        return np.random.default_rng(0).standard_normal((len(rows), self.teacher.width), np.float32)

    def once(self, read: Callable[[Shared], T]) -> T:
        """read(self), called for the first of several feeds that share a source."""
        if read not in self._read:
            self._read[read] = read(self)
        return self._read[read]
