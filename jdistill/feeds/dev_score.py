"""The dev figures of an encoder at a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.fetched import path_here
from jdistill.encoder.encoder import Encoder
from jdistill.evals import sts
from jdistill.evals.agreement import agreement
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings


def encoder_score(
    cfg: ConfigDict, corpus: Corpus, embeddings: TeacherEmbeddings, by_agreement: bool
) -> Callable[[Encoder], dict[str, float]]:
    """Encoder -> figures, of which "score" selects: Spearman on cfg.dev_pairs, agreement with the teacher where by_agreement says so,
    or the mean of both.

    A few hundred pairs alone move by half a point from one checkpoint to the next, and would choose an early one by luck.
    Fine-tuning leaves the teacher on purpose, so that agreement would choose the least tuned one. Without a score the last
    checkpoint is taken. All processes of a run call this together, since it asks the teacher of the held-out texts.
    """
    texts, of_teacher = corpus.held_out, embeddings.held_out()
    dev_pairs = path_here(cfg.dev_pairs, "config.dev_pairs") if cfg.dev_pairs else None

    def score(model: Encoder) -> dict[str, float]:
        figures: dict[str, float] = {}
        if texts:
            agrees = agreement(model.encode(texts), of_teacher)
            figures = {name: agrees[name] for name in ("spearman", "mean_cosine") if agrees.get(name) is not None}
        if dev_pairs is not None:
            figures["pairs"] = sts.evaluate_pairs(model, dev_pairs)
        chosen_by = [
            name for name, counts in (("pairs", True), ("spearman", by_agreement)) if counts and name in figures
        ]
        return figures | ({"score": float(np.mean([figures[name] for name in chosen_by]))} if chosen_by else {})

    return score
