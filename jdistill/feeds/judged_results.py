"""A student and its judge on the held-out part of labelled pairs: as pairs, and as questions that look for their passages."""

from __future__ import annotations

import numpy as np
from ml_collections import ConfigDict

from jdistill.data.sets.collection import Collection
from jdistill.data.sets.pairs import Pairs, sample_pairs
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.pair_labels import average_precision, pair_scores
from jdistill.evals.retrieval import deepest_of, document_vectors, measures, search
from jdistill.feeds.judged import JudgedPairs, JudgedSet
from jdistill.models.interaction import BRANCHES


def evaluate_judged(
    cfg: ConfigDict, judged_pairs: JudgedPairs, student: PairScorer
) -> dict[str, dict[str, dict[str, float]]]:
    """file -> "student" and "teacher" -> figures of its test pairs (evals.pair_labels, in percent). The thresholds are those of
    cfg.threshold_pairs training pairs, the same for every seed of a run, so that the judge is asked of them once."""
    figures = {}
    for judged_set in judged_pairs.sets:
        train = sample_pairs(judged_set.train, cfg.threshold_pairs, seed=0)

        def of_student(pairs: Pairs, symmetric: bool = judged_set.branch == BRANCHES[0]) -> np.ndarray:
            return student.score(pairs.queries, pairs.passages, symmetric)

        figures[judged_set.name] = {
            "student": pair_scores(
                of_student(train), train.labels, of_student(judged_set.test), judged_set.test.labels
            ),
            "teacher": pair_scores(
                judged_pairs.judge_scores(cfg, judged_set, train),
                train.labels,
                judged_pairs.judge_scores(cfg, judged_set, judged_set.test),
                judged_set.test.labels,
            ),
        }
    return figures


def average_precisions(judged_pairs: JudgedPairs, student: PairScorer) -> dict[str, float]:
    """File -> average precision of the student on its dev pairs, in percent; of files that have such."""
    return {
        judged_set.name: average_precision(
            student.score(judged_set.dev.queries, judged_set.dev.passages, judged_set.branch == BRANCHES[0]),
            judged_set.dev.labels,
        )
        for judged_set in judged_pairs.sets
        if len(judged_set.dev)
    }


def held_out_collection(judged_set: JudgedSet, of: str = "test") -> Collection:
    """The test or dev questions that have a passage, and the distinct passages of all of its pairs, those of training too: not those behind
    the first test_pairs, nor of pairs that other sets hold."""
    id_of = {text: str(i) for i, text in enumerate(judged_set.passages)}
    relevant: dict[str, dict[str, int]] = {}
    pairs: Pairs = judged_set.dev if of == "dev" else judged_set.test
    for query, passage, right in zip(pairs.queries, pairs.passages, pairs.labels, strict=True):
        if right:
            relevant.setdefault(query, {})[id_of[passage]] = 1
    queries = {f"q{i}": query for i, query in enumerate(relevant)}
    return Collection(
        judged_set.name,
        {place: text for text, place in id_of.items()},
        queries,
        {name: relevant[query] for name, query in queries.items()},
    )


def evaluate_questions(
    judged_pairs: JudgedPairs, scorer: PairScorer, rescore: int
) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """ "test" and "dev" -> asymmetric file -> "cosine" -> ndcg@10, mrr@10, recall@10 …, 0 to 1 (evals.retrieval), and, of a model with an
    interaction module, "rescored", by which it ranks `rescore` passages of each question anew (0: all of them)."""
    figures: dict[str, dict[str, dict[str, dict[str, float]]]] = {"test": {}, "dev": {}}
    for judged_set in (judged_set for judged_set in judged_pairs.sets if judged_set.branch == BRANCHES[1]):
        collections = {of: held_out_collection(judged_set, of) for of in figures}
        if not any(collection.queries for collection in collections.values()):
            continue
        vectors = document_vectors(scorer.encoder, collections["test"])  # of either
        for of, collection in collections.items():
            if collection.queries:
                figures[of][judged_set.name] = _by_cosine_and_module(collection, scorer, vectors, rescore)
    return figures


def _by_cosine_and_module(
    collection: Collection, scorer: PairScorer, vectors: np.ndarray, rescore: int
) -> dict[str, dict[str, float]]:
    model = scorer.encoder
    relevant = collection.relevant
    figures = {"cosine": measures(search(model, collection, model, vectors=vectors).ranking, relevant)}
    if scorer.params is not None:
        by_module = search(model, collection, model, scorer=scorer, rescore=rescore, vectors=vectors)
        figures["rescored"] = measures(by_module.ranking, relevant, deepest_of(scorer, rescore))
    return figures
