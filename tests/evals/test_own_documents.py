"""Queries that are documents of their collection, as ArguAna's are: none finds itself, by a model, by words, or by mteb."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest
from conftest import make_encoder, sentences
from test_retrieval import Angles

from jdistill.core.progress import log
from jdistill.data.sets.beir import read_collection, write_collection
from jdistill.evals.lexical import evaluate_bm25
from jdistill.evals.retrieval import document_vectors, evaluate_beside_queries_of, evaluate_retrieval, ndcg_in
from jdistill.retrieval.index import EXACT, build_index


def test_a_query_that_is_a_document_does_not_find_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A document that has a query's id by chance stays in its ranking, and one that was judged relevant too."""
    documents = {
        "1": "Title apples  at 0",
        "2": "pears at 41",
        "3": "apples at 3",
        "4": "grapes at 40",
        "5": "plums at 90",
    }
    queries = {"1": "apples at 0", "2": "grapes at 41", "5": "plums at 90"}
    write_collection(tmp_path / "c", documents, queries, {"1": {"3": 1}, "2": {"4": 1}, "5": {"5": 1}})
    log.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, logger=log.name)
    mine, read = Angles(), read_collection(tmp_path / "c")
    log.removeHandler(caplog.handler)
    assert read.own_documents == {"1"} and "c: 1 queries are documents of it" in caplog.text
    figures = [evaluate_retrieval(mine, tmp_path, corpus_model=owner)["c"] for owner in (None, Angles())]
    figures += evaluate_beside_queries_of(mine, mine, tmp_path)[0]["c"], evaluate_bm25(tmp_path)["c"]
    for found, of_second in zip(figures, (1 / 2, 1 / 2, 1 / 2, 1), strict=True):  # by words grapes come first
        assert found["mrr@10"] == pytest.approx((1 + of_second + 1) / 3)
    in_second_place = (2 + 1 / math.log2(3)) / 3
    assert ndcg_in(build_index(document_vectors(mine, read), EXACT), mine, read) == pytest.approx(in_second_place)


def test_mteb_leaves_out_the_same(tmp_path: Path) -> None:
    pytest.importorskip("mteb", reason="mteb is not installed, which the test extra brings")
    from test_mteb import by_mteb, same

    texts = sentences(40)
    queries = {f"d{i}": texts[i if i < 10 else i - 10] for i in range(20)}  # the last ten share an id alone
    relevant = {query: {f"d{int(query[1:]) + 1}": 1} for query in queries}
    write_collection(tmp_path / "c", {f"d{i}": text for i, text in enumerate(texts)}, queries, relevant)
    model = make_encoder(num_layers=1)
    same(by_mteb(model, f"beir:{tmp_path / 'c'}", tmp_path / "out"), evaluate_retrieval(model, tmp_path)["c"])
