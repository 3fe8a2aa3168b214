"""What the teacher puts into an index of its own: its vectors of documents, as it reads them by itself, kept with its answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.data.sets.collection import Collection
from jdistill.feeds.tokens import cache_folder
from jdistill.teachers.cache import in_one_piece
from jdistill.teachers.embeddings import Teacher, open_teacher
from jdistill.teachers.fill import ask


def document_teacher(cfg: ConfigDict) -> Teacher:
    """The teacher as it fills an index of its own: of a document, at its own length, whatever the run read of a text."""
    source = cfg.teacher or cfg.start
    whole = open_teacher(source, 0, cfg.teacher_dtype, cfg.teacher_pooling, cfg.trust_remote_code)
    return whole.in_role("document") if whole.roles else whole


def document_answers(
    cfg: ConfigDict, teacher: Teacher, texts: Sequence[str], what: str, alone: bool = False
) -> np.ndarray:
    """The vectors of documents, float32 [N, D]: those that the steps have read are kept, where the teacher read whole texts for them too;
    the rest is asked.

    Args:
      teacher: document_teacher's.
      what: the answers, for messages.
      alone: this process asks for all; else all processes of a run call it together.
    """
    cache = teacher.cache(cache_folder(cfg), writer=0 if alone else sharding.process_index())
    return ask(cache, texts, in_one_piece(teacher.answer), what, alone=alone).read()


def dev_document_answers(cfg: ConfigDict, collections: Sequence[Collection]) -> list[np.ndarray]:
    """The teacher's vectors of the documents of cfg.dev_retrieval's collections, float32 [M, D] of each. All processes of a run call it
    together.

    Raises: UserError where the teacher is a file of vectors that lacks a document.
    """
    if not collections:
        return []
    teacher = document_teacher(cfg)
    try:
        return [
            document_answers(cfg, teacher, list(of.documents.values()), f"vectors of {of.name}'s documents")
            for of in collections
        ]
    except UserError as error:
        if teacher.roles is not None:
            raise
        raise UserError(
            f"--config.dev_retrieval={cfg.dev_retrieval}: checkpoints are chosen in the teacher's index (--config.index_by=teacher), and the "
            f"teacher cannot answer the collection's documents ({error}); add their vectors, leave --config.dev_retrieval empty, or set "
            "--config.index_by=student"
        ) from None
