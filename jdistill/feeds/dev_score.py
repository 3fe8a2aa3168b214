"""The dev figures of an encoder at a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import DigestPart, digest
from jdistill.core.fetched import path_here
from jdistill.data.sets.collections import read_collections
from jdistill.encoder.encoder import Encoder
from jdistill.evals import sts
from jdistill.evals.agreement import agreement
from jdistill.evals.retrieval import document_vectors, ndcg_in
from jdistill.evals.sts import ranked_pairs
from jdistill.evals.translations import mean_over_languages, translation_figures
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.parallel import held_out_pair_vectors
from jdistill.feeds.roles import held_out_vectors
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
from jdistill.feeds.teacher_index import dev_document_answers
from jdistill.retrieval.index import EXACT, TEACHER, build_index

DEV_SETS = ("dev_pairs", "dev_retrieval")  # keys of the config that name a set of one's own

# A search's name among the figures, by whose index it asks.
OWN_INDEX, TEACHERS_INDEX = "retrieval", "retrieval_teacher_index"


def encoder_score(
    cfg: ConfigDict, corpus: Corpus, embeddings: TeacherEmbeddings, by_agreement: bool
) -> Callable[[Encoder], dict[str, float]]:
    """Encoder -> figures, of which "score" selects: the mean of those that there are of Spearman on cfg.dev_pairs, nDCG@10 x 100 on
    cfg.dev_retrieval (dev_search) and, where by_agreement says so, agreement with the teacher, of held-out texts and of held-out
    translations with its vectors of their sources.

    A few hundred pairs alone move by half a point from one checkpoint to the next, and would choose an early one by luck.
    Fine-tuning leaves the teacher on purpose, so that agreement would choose the least tuned one. Without a score the last
    checkpoint is taken. All processes of a run call this together, since it asks the teacher of the held-out texts.
    """
    of_teacher = embeddings.held_out()
    search_figures = dev_search(cfg)
    dev_pairs = path_here(cfg.dev_pairs, "config.dev_pairs") if cfg.dev_pairs else None

    def score(model: Encoder) -> dict[str, float]:
        figures: dict[str, float] = {}
        if corpus.held_out:
            agrees = agreement(held_out_vectors(model, corpus), of_teacher)
            figures = {name: agrees[name] for name in ("spearman", "mean_cosine") if agrees.get(name) is not None}
        if corpus.held_out_pairs:
            vectors = held_out_pair_vectors(model, corpus, embeddings.held_out_pairs())
            figures |= mean_over_languages(translation_figures(vectors))
        if dev_pairs is not None:
            figures["pairs"] = sts.evaluate_pairs(model, dev_pairs)
        figures |= search_figures(model)
        counted = {
            "pairs": True, OWN_INDEX: True, TEACHERS_INDEX: True, "spearman": by_agreement, "translations": by_agreement,
        }  # fmt: skip
        chosen_by = [name for name, counts in counted.items() if counts and name in figures]
        return figures | ({"score": float(np.mean([figures[name] for name in chosen_by]))} if chosen_by else {})

    return score


def dev_sets_digest(cfg: ConfigDict, keys: Collection[str]) -> str:
    """A hash of what the sets of one's own hold by which a stage's checkpoints are scored; "" where there is none.

    keys: of DEV_SETS, those that the stage is scored by.
    """
    parts: list[DigestPart] = []
    if "dev_pairs" in keys and cfg.dev_pairs:
        for left, right, gold in ranked_pairs(path_here(cfg.dev_pairs, "config.dev_pairs")).values():
            parts += [list(left), list(right), np.asarray(gold, np.float64)]
    if "dev_retrieval" in keys and cfg.dev_retrieval:
        for collection in read_collections(cfg.dev_retrieval, "config.dev_retrieval"):
            for texts in (collection.documents, collection.queries):
                parts += [list(texts), list(texts.values())]
            parts.append(repr(sorted((query, sorted(grades.items())) for query, grades in collection.relevant.items())))
    return digest(*parts) if parts else ""


def dev_search(cfg: ConfigDict) -> Callable[[Encoder], dict[str, float]]:
    """Encoder -> nDCG@10 x 100 of exact searches in cfg.dev_retrieval, the mean over its collections, by a name that says whose index it is.

    With cfg.index_by=teacher the encoder asks the teacher's documents, which are read and indexed here, once: all processes of a run
    call it together. Else it fills an index of its own each time. Without cfg.dev_retrieval it gives nothing.
    """
    collections = list(read_collections(cfg.dev_retrieval, "config.dev_retrieval")) if cfg.dev_retrieval else []
    by_teacher = cfg.index_by == TEACHER
    by_collection = dev_document_answers(cfg, collections) if by_teacher else []
    of_teacher = [build_index(vectors, EXACT) for vectors in by_collection]

    def figures(model: Encoder) -> dict[str, float]:
        if not collections:
            return {}
        if by_teacher:
            each = [ndcg_in(index, model, of) for index, of in zip(of_teacher, collections, strict=True)]
        else:
            each = [ndcg_in(build_index(document_vectors(model, of), EXACT), model, of) for of in collections]
        return {TEACHERS_INDEX if by_teacher else OWN_INDEX: 100 * float(np.mean(each))}

    return figures
