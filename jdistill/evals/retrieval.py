"""Retrieval on collections: cosine search in a FAISS index, measured by trec_eval's code."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pytrec_eval

from jdistill.data.sets.collection import Collection
from jdistill.data.sets.collections import read_collections
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.shared_space import check_asks_index_of
from jdistill.retrieval import index
from jdistill.retrieval.index_kinds import check_kind

DEPTH = 1000  # the deepest cut of a measure
FIRST = 10  # the cut that every search is measured at
RERANKED_QUERIES = 64  # whose proposed documents a scorer ranks in one call
CUTS = {"ndcg@10": "ndcg_cut_10", "recall@10": "recall_10", "recall@100": "recall_100", "recall@1000": "recall_1000"}


class Reranker(Protocol):
    """What ranks documents anew from vectors: a PairScorer's question, does the passage answer the query."""

    def rescore(self, query_vectors: np.ndarray, passage_vectors: np.ndarray) -> np.ndarray:
        """The scores of each query with passages of its own: float32 [n, D] and [n, k, D] to [n, k]."""

    def every(self, query_vectors: np.ndarray, passage_vectors: np.ndarray) -> np.ndarray:
        """The scores of every query with every passage: float32 [n, D] and [m, D] to [n, m]."""


@dataclass(frozen=True)
class Found:
    """ranking: query id -> document ids, best first, with their scores. What the index takes and how fast it answers."""

    ranking: dict[str, dict[str, float]]
    index_bytes: int
    queries_per_s: float


def evaluate_retrieval(
    encoder: TextEncoder,
    source: str | Path,
    *,
    corpus_model: TextEncoder | None = None,
    kind: str = index.EXACT,
    effort: str = "",
    scorer: Reranker | None = None,
    rescore: int = 0,
) -> dict[str, dict[str, float]]:
    """The figures of a search in each collection of a source.

    Args:
      encoder: embeds the queries; its prompts for queries and documents are used.
      source: as data.sets.collections.read_collections takes it.
      corpus_model: encodes the documents in the encoder's place, so that small queries search an index that a large model filled.
      kind, effort: of the index, as index.build_index.
      scorer: ranks the documents that the index proposes anew; None: nobody does.
      rescore: so many it ranks of each query; 0: all of the collection, without an index.

    Returns: collection -> ndcg@10, mrr@10, recall@10, recall@100 and recall@1000, 0 to 1, means over the judged queries, without
      recalls that are deeper than `rescore`; index_bytes as written to disk; queries_per_s, encoding and search.

    Raises: UserError as read_collections does, for an index that FAISS does not make of a collection, before any is encoded, and
      where the two models' vectors do not stand in one space, as the first collection tells.
    """
    figures: dict[str, dict[str, float]] = {}
    check_kind_for_each(source, kind, effort, (corpus_model or encoder).dim)
    for collection in read_collections(str(source)):
        if corpus_model is not None and not figures:
            check_asks_index_of(encoder, corpus_model, collection)
        ranked = search(encoder, collection, corpus_model or encoder, kind, effort, scorer, rescore)
        figures[collection.name] = _figures(ranked, collection, deepest_of(scorer, rescore))
    return figures


def deepest_of(scorer: Reranker | None, rescore: int) -> int:
    """How deep a search's ranking goes, by which its recalls are cut: what a scorer ranks of each query, or DEPTH."""
    return rescore if scorer is not None and rescore else DEPTH


def evaluate_beside_queries_of(
    query_model: TextEncoder, encoder: TextEncoder, source: str | Path, kind: str = index.EXACT, effort: str = ""
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """evaluate_retrieval of an encoder, and of another model's queries in the index that it filled, whose vectors are made once."""
    of_encoder: dict[str, dict[str, float]] = {}
    of_queries: dict[str, dict[str, float]] = {}
    check_kind_for_each(source, kind, effort, encoder.dim)
    for collection in read_collections(str(source)):
        vectors = document_vectors(encoder, collection)
        for model, figures in ((encoder, of_encoder), (query_model, of_queries)):
            ranked = search(model, collection, encoder, kind, effort, vectors=vectors)
            figures[collection.name] = _figures(ranked, collection)
    return of_encoder, of_queries


def check_kind_for_each(source: str | Path, kind: str, effort: str, width: int) -> None:
    """Raises UserError for an index that FAISS does not make of each collection's documents, before those of the first are encoded."""
    if (kind, effort) != (index.EXACT, ""):  # which is made of any number
        for collection in read_collections(str(source)):
            check_kind(kind, effort, width, len(collection.documents))


def _figures(ranked: Found, collection: Collection, deepest: int = DEPTH) -> dict[str, float]:
    return measures(ranked.ranking, collection.relevant, deepest) | {
        "index_bytes": ranked.index_bytes,
        "queries_per_s": ranked.queries_per_s,
    }


def search(
    encoder: TextEncoder,
    collection: Collection,
    documents_by: TextEncoder,
    kind: str = index.EXACT,
    effort: str = "",
    scorer: Reranker | None = None,
    rescore: int = 0,
    vectors: np.ndarray | None = None,
) -> Found:
    """The best documents of every query, at most 1,000 each, or, proposed for a scorer, `rescore`. vectors: the documents', float32
    [M, D], where they are made already. Raises UserError, before they are made, for an index that FAISS does not make of so many."""
    queries, prompt = list(collection.queries.values()), encoder.prompt_for("query")
    if vectors is None:
        check_kind(kind, effort, documents_by.dim, len(collection.documents))
        vectors = document_vectors(documents_by, collection)
    filled = index.build_index(vectors, kind, effort)

    own = own_rows(collection)

    def find() -> tuple[np.ndarray, np.ndarray]:
        return best_rows(filled, encoder.encode(queries, prompt=prompt), vectors, scorer, rescore, own)

    # Compiles what these lengths need, so that the clock does not see it.
    encoder.encode(queries, prompt=prompt) if scorer is None else find()
    began = time.perf_counter()
    scores, rows = find()
    seconds = time.perf_counter() - began
    return Found(ranking_of(collection, scores, rows), filled.num_bytes, len(queries) / seconds)


def ndcg_in(filled: index.Index, model: TextEncoder, collection: Collection) -> float:
    """nDCG@10, 0 to 1, of a model's queries in an index of the collection's documents in their order."""
    queries = model.encode(list(collection.queries.values()), prompt=model.prompt_for("query"))
    return measures(ranking_of(collection, *filled.search(queries, DEPTH)), collection.relevant)["ndcg@10"]


def best_rows(
    filled: index.Index,
    query_vectors: np.ndarray,
    vectors: np.ndarray,
    scorer: Reranker | None = None,
    rescore: int = 0,
    own: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores [Q, k] and rows [Q, k] of the best documents of each query, best first, k as `search` tells; a row of -1 is none.

    Args:
      vectors: what the scorer reads of the documents, float32 [M, D], which may be finer than what the index holds.
      own: of each query the row of the document that it is itself, which is not proposed, int [Q], -1: none; None: of no query.
    """
    more = own is not None  # one may go
    if scorer is None:
        return _without_own(*filled.search(query_vectors, DEPTH + more), own, DEPTH)
    proposed = _without_own(*filled.search(query_vectors, rescore + more), own, rescore)[1] if rescore else None
    best = []
    for start in range(0, len(query_vectors), RERANKED_QUERIES):
        block = query_vectors[start : start + RERANKED_QUERIES]
        if proposed is not None:
            rows = proposed[start : start + RERANKED_QUERIES]
            scores = np.where(rows < 0, -np.inf, scorer.rescore(block, vectors[np.maximum(rows, 0)]))
        else:
            scores = scorer.every(block, vectors)
            rows = np.broadcast_to(np.arange(len(vectors)), scores.shape)
        order = np.argsort(-scores, axis=1, kind="stable")[:, : DEPTH + more]
        best.append((np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)))
    scores, rows = np.concatenate([scores for scores, _ in best]), np.concatenate([rows for _, rows in best])
    return (scores, rows) if rescore else _without_own(scores, rows, own, DEPTH)


def own_rows(collection: Collection) -> np.ndarray | None:
    """Of each query the row of the document that it is itself (Collection.own_documents), -1 where it is none; None where none is."""
    if not collection.own_documents:
        return None
    row_of = {name: row for row, name in enumerate(collection.documents)}
    return np.array(
        [row_of.get(query, -1) if query in collection.own_documents else -1 for query in collection.queries]
    )


def _without_own(
    scores: np.ndarray, rows: np.ndarray, own: np.ndarray | None, depth: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows [Q, k] without the query itself, in whose place a row of -1 comes last, cut to the first `depth`."""
    if own is None:
        return scores, rows
    itself = (rows == own[:, None]) & (rows >= 0)
    scores, rows = np.where(itself, -np.inf, scores), np.where(itself, -1, rows)
    left = np.argsort(itself, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(scores, left, axis=1), np.take_along_axis(rows, left, axis=1)


def ranking_of(collection: Collection, scores: np.ndarray, rows: np.ndarray) -> dict[str, dict[str, float]]:
    """Query id -> document ids, best first, with their scores, of what best_rows found, without the query itself
    (Collection.own_documents)."""
    document_ids, own = list(collection.documents), collection.own_documents
    ranking = {
        query: {document_ids[row]: float(score) for row, score in zip(rows[q], scores[q], strict=True) if row >= 0}
        for q, query in enumerate(collection.queries)
    }
    for query in own:
        ranking[query].pop(query, None)
    return ranking


def document_vectors(model: TextEncoder, collection: Collection) -> np.ndarray:
    """Of the collection's documents in their order, float32 [M, D], by the model's prompt for documents."""
    texts = list(collection.documents.values())
    return model.encode(texts, prompt=model.prompt_for("document"), show_progress=True)


def measures(
    ranking: dict[str, dict[str, float]], relevant: dict[str, dict[str, int]], deepest: int = DEPTH
) -> dict[str, float]:
    """Query id -> document id -> score, against query id -> document id -> grade: means over the queries of `relevant`, without
    recalls deeper than `deepest` documents, so many as were ranked; those of the first ten are always there."""
    per_query = list(
        pytrec_eval.RelevanceEvaluator(relevant, {*CUTS.values(), "recip_rank"}).evaluate(ranking).values()
    )
    # trec_eval has no cut for the reciprocal rank; below a tenth, the first relevant document came after place ten.
    first = [values["recip_rank"] if values["recip_rank"] >= 1 / 10 else 0.0 for values in per_query]
    cuts = {name: cut for name, cut in CUTS.items() if int(name.partition("@")[2]) <= max(deepest, FIRST)}
    means = {name: float(np.mean([values[cut] for values in per_query])) for name, cut in cuts.items()}
    return {"ndcg@10": means.pop("ndcg@10"), "mrr@10": float(np.mean(first))} | means
