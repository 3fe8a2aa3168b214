"""Queries that are documents themselves are left out of their own rankings, which are as deep as every other query's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from jdistill.data.sets.collection import Collection
from jdistill.evals import lexical, retrieval
from jdistill.evals.retrieval import search

DOCUMENTS = {f"d{i}": f"T {angle}" for i, angle in enumerate((0, 3, 7, 20, 40, 90))}
QUERIES = {"d0": "T 0", "q": "one 4"}  # the first is a document
NEAREST = {"d0": ["d1", "d2", "d3", "d4", "d5"], "q": ["d1", "d2", "d0", "d3", "d4", "d5"]}


class Angles:
    """Encodes by the number that ends a text, as an angle."""

    num_params, dim = 0, 2

    def prompt_for(self, role: str) -> str | None:
        return None

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        angles = np.radians([float(text.split()[-1]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class Farthest:
    """Ranks whatever it is shown the other way round."""

    def rescore(self, query_vectors: np.ndarray, passage_vectors: np.ndarray) -> np.ndarray:
        return -(query_vectors[:, None] * passage_vectors).sum(-1)

    def every(self, query_vectors: np.ndarray, passage_vectors: np.ndarray) -> np.ndarray:
        return -query_vectors @ passage_vectors.T


@pytest.fixture
def collection() -> Collection:
    made = Collection("c", DOCUMENTS, QUERIES, {"d0": {"d1": 1}, "q": {"d2": 1}})
    assert made.own_documents == {"d0"}
    return made


def found(collection: Collection, **how: Any) -> dict[str, list[str]]:
    encoder: Any = Angles()
    return {query: [*documents] for query, documents in search(encoder, collection, encoder, **how).ranking.items()}


@pytest.mark.parametrize("depth", [1, 2, 5, 6, 1000])  # of six documents
def test_every_query_has_as_many_documents(collection: Collection, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nearest = {query: documents[:depth] for query, documents in NEAREST.items()}
    farthest_first = {query: documents[::-1] for query, documents in nearest.items()}
    assert found(collection, scorer=Farthest(), rescore=depth) == farthest_first  # of those that the index proposes
    monkeypatch.setattr(retrieval, "DEPTH", depth)
    assert found(collection) == nearest
    assert found(collection, scorer=Farthest()) == {query: of[::-1][:depth] for query, of in NEAREST.items()}


def test_a_measure_deeper_than_what_is_ranked_anew_is_none(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "read_collections", lambda source: iter([collection]))
    encoder: Any = Angles()
    figures = retrieval.evaluate_retrieval(encoder, "c", scorer=Farthest(), rescore=10)["c"]
    assert figures["recall@10"] == 1.0 and not figures.keys() & {"recall@100", "recall@1000"}
    assert {"recall@100", "recall@1000"} <= retrieval.evaluate_retrieval(encoder, "c", scorer=Farthest())["c"].keys()


def test_words_search_as_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Collection(
        "c", {"a": "river stone", "b": "river water", "c": "bread"}, {"a": "river stone"}, {"a": {"b": 1}}
    )
    monkeypatch.setattr(lexical, "read_collections", lambda source: iter([made]))
    monkeypatch.setattr(lexical, "DEPTH", 1)
    assert lexical.evaluate_bm25("c")["c"]["mrr@10"] == 1.0
