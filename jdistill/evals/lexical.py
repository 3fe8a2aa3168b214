"""Search by words alone (BM25) on collections: the baseline beside which a model's figures are read."""

from __future__ import annotations

from pathlib import Path

from jdistill.data.sets.collections import read_collections
from jdistill.evals.retrieval import DEPTH, measures, ranking_of
from jdistill.retrieval.bm25 import bm25_search


def evaluate_bm25(source: str | Path) -> dict[str, dict[str, float]]:
    """The figures of BM25 in each collection of a source, as retrieval.bm25 has it (Lucene's form, English stop words left out).

    Returns: collection -> ndcg@10, mrr@10 and recalls, 0 to 1, as evals.retrieval gives them of a model.

    Raises: UserError as read_collections does.
    """
    figures = {}
    for collection in read_collections(str(source)):
        queries = list(collection.queries.values())
        deep = DEPTH + bool(collection.own_documents)  # of which one may be the query itself
        find, _ = bm25_search(queries, list(collection.documents.values()), deep)
        figures[collection.name] = measures(ranking_of(collection, *find(0, len(queries))), collection.relevant)
    return figures
