"""Retrieval on a file of labelled pairs: each held-out question looks for its passages among all of the file's."""

from __future__ import annotations

from jdistill.data.sets.collection import Collection
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.retrieval import document_vectors, measures, search
from jdistill.feeds.judged import Judged, JudgedSet
from jdistill.models.interaction import BRANCHES


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


def evaluate_questions(judged: Judged, scorer: PairScorer, rescore: int) -> dict[str, dict[str, dict[str, float]]]:
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
