"""A student and its judge on the held-out part of labelled pairs: as pairs, and as questions that look for their passages."""

from __future__ import annotations

import numpy as np
from ml_collections import ConfigDict

from jdistill.data.sets.collection import Collection
from jdistill.data.sets.pairs import Pairs, drawn
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.pair_labels import pair_scores
from jdistill.evals.retrieval import document_vectors, measures, search
from jdistill.feeds.judged import JudgedPairs, JudgedSet
from jdistill.models.interaction import BRANCHES


def evaluate_judged(
    cfg: ConfigDict, judged: JudgedPairs, student: PairScorer
) -> dict[str, dict[str, dict[str, float]]]:
    """file -> "student" and "teacher" -> figures of its test pairs (evals.pair_labels, in percent). The thresholds are those of
    cfg.threshold_pairs training pairs, the same for every seed of a run, so that the judge is asked of them once."""
    found = {}
    for one in judged.sets:
        train = drawn(one.train, cfg.threshold_pairs, seed=0)

        def of_student(pairs: Pairs, symmetric: bool = one.branch == BRANCHES[0]) -> np.ndarray:
            return student.score(pairs.queries, pairs.passages, symmetric)

        found[one.name] = {
            "student": pair_scores(of_student(train), train.labels, of_student(one.test), one.test.labels),
            "teacher": pair_scores(
                judged.judge_scores(cfg, one, train),
                train.labels,
                judged.judge_scores(cfg, one, one.test),
                one.test.labels,
            ),
        }
    return found


def held_out_collection(one: JudgedSet) -> Collection:
    """The test questions that have a passage, and the distinct passages of all pairs of the file, those of training too."""
    id_of = {text: str(i) for i, text in enumerate(one.passages)}
    relevant: dict[str, dict[str, int]] = {}
    for query, passage, right in zip(one.test.queries, one.test.passages, one.test.labels, strict=True):
        if right:
            relevant.setdefault(query, {})[id_of[passage]] = 1
    queries = {f"q{i}": query for i, query in enumerate(relevant)}
    return Collection(
        one.name,
        {place: text for text, place in id_of.items()},
        queries,
        {name: relevant[query] for name, query in queries.items()},
    )


def evaluate_questions(judged: JudgedPairs, scorer: PairScorer, rescore: int) -> dict[str, dict[str, dict[str, float]]]:
    """Asymmetric file -> "cosine" -> ndcg@10, mrr@10, recall@10 …, 0 to 1 (evals.retrieval), and, of a model with an interaction
    module, "rescored", by which it ranks `rescore` passages of each question anew (0: all of them)."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in (one for one in judged.sets if one.branch == BRANCHES[1]):
        collection, model = held_out_collection(one), scorer.encoder
        if not collection.queries:
            continue
        vectors = document_vectors(model, collection)
        rankings = {"cosine": search(model, collection, model, vectors=vectors).ranking}
        if scorer.params is not None:
            by_module = search(model, collection, model, scorer=scorer, rescore=rescore, vectors=vectors)
            rankings["rescored"] = by_module.ranking
        found[one.name] = {how: measures(ranking, collection.relevant) for how, ranking in rankings.items()}
    return found
