"""A scorer of pairs: by cosine or the interaction module, in a search, and saved only where torch computes the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, save_encoder, sentences
from d2llm_setting import HEAD_SUMS as SUMS
from parity import assert_close

from jdistill.core.errors import UserError
from jdistill.data.sets.beir import collections, read_collection, write_collection
from jdistill.encoder.pair_scorer import PairScorer, load_pair_scorer
from jdistill.evals.retrieval import evaluate_retrieval, search
from jdistill.export.interaction import save_interaction
from jdistill.models.interaction import random_iem


def test_without_an_interaction_module_pairs_are_scored_by_cosine(tmp_path: Path) -> None:
    save_encoder(make_decoder(), tmp_path / "plain")
    scorer = load_pair_scorer(tmp_path / "plain")
    a, b = (scorer.encoder.encode([text]) for text in ("the river", "a stone"))
    assert scorer.score(["the river"], ["a stone"], True)[0] == pytest.approx(float((a * b).sum()), abs=1e-5)
    with pytest.raises(UserError, match="2 queries and 1 passages"):
        scorer.score(["a", "b"], ["c"], True)
    with pytest.raises(UserError, match="queries is one string, 'hello'"):
        scorer.score("hello", "world", True)
    with pytest.raises(UserError, match="passages is one string, 'world'"):
        scorer.score(["hello"] * 5, "world", True)
    with pytest.raises(UserError, match="text 1 of passages is list, not a string"):
        scorer.score(["a", "a"], ["b", ["c"]], True)


@pytest.mark.parametrize("interaction", ["dual", "single"])
def test_a_module_beside_cosines_in_torch_and_back(tmp_path: Path, interaction: str) -> None:
    pytest.importorskip("sentence_transformers")
    params = random_iem(32, np.random.default_rng(0), 8) | {"cosine": np.float32(7.0)}
    scorer = PairScorer(make_decoder(), params, interaction)
    save_encoder(scorer.encoder, tmp_path / "student")
    assert save_interaction(scorer, tmp_path / "student") is not None  # which refuses logits that differ
    again = load_pair_scorer(str(tmp_path / "student"))
    assert again.interaction == interaction and float(again.params["cosine"]) == 7.0
    pairs, vectors = (["the river", "a stone"], ["a river", "the sea"]), make_decoder().encode(["the river", "the sea"])
    np.testing.assert_array_equal(again.score(*pairs, True), scorer.score(*pairs, True))
    without = PairScorer(scorer.encoder, {name: part for name, part in params.items() if name != "cosine"}, interaction)
    added = scorer.every(vectors, vectors, True) - without.every(vectors, vectors, True)
    assert_close(added, 7 * vectors @ vectors.T, *SUMS, largest=7.0)


def test_an_interaction_module_that_was_not_checked_has_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    save_encoder(scorer.encoder, tmp_path / "student")
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    assert save_interaction(scorer, tmp_path / "student") is None
    again = load_pair_scorer(str(tmp_path / "student"))
    np.testing.assert_array_equal(again.score(["a"], ["b"], True), scorer.score(["a"], ["b"], True))
    assert save_interaction(PairScorer(scorer.encoder, None, "cosine"), tmp_path / "student") is None


def test_a_module_that_torch_computes_otherwise_is_not_left_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    save_encoder(scorer.encoder, tmp_path / "student")
    monkeypatch.setattr("jdistill.export.interaction.TOLERANCE", -1.0)  # which no difference is within
    with pytest.raises(UserError, match="differ from Flax's by"):
        save_interaction(scorer, tmp_path / "student")
    assert load_pair_scorer(str(tmp_path / "student")).interaction == "cosine"
    assert not list((tmp_path / "student").rglob("*nteraction*"))


def test_search_with_the_interaction_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = sentences(40, seed=9)
    documents = {f"d{i}": text for i, text in enumerate(texts[:30])}
    queries = {f"q{i}": text for i, text in enumerate(texts[30:])}
    write_collection(tmp_path / "beir" / "small", documents, queries, {q: {"d3": 1} for q in queries})
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    (collection,) = (read_collection(path) for path in collections(tmp_path / "beir"))
    every = search(scorer.encoder, collection, scorer.encoder, scorer=scorer).ranking
    pairs = [(q, d) for q in queries for d in documents]
    logits = scorer.score([queries[q] for q, _ in pairs], [documents[d] for _, d in pairs], symmetric=False)
    largest = np.abs(logits).max()
    for (q, d), logit in zip(pairs, logits, strict=True):
        assert_close(every[q][d], logit, *SUMS, largest=largest)
    proposed = search(scorer.encoder, collection, scorer.encoder, scorer=scorer, rescore=5).ranking
    by_cosine = search(scorer.encoder, collection, scorer.encoder).ranking
    for q, found in proposed.items():
        assert set(found) == set(sorted(by_cosine[q], key=lambda d, q=q: -by_cosine[q][d])[:5])
        assert list(found) == sorted(found, key=lambda d, q=q: -every[q][d])
    monkeypatch.setattr("jdistill.encoder.pair_scorer.LOGIT_ROWS", 4)
    monkeypatch.setattr("jdistill.encoder.pair_scorer.LOGIT_COLUMNS", 7)
    monkeypatch.setattr("jdistill.evals.retrieval.RERANKED_QUERIES", 3)
    in_blocks = search(scorer.encoder, collection, scorer.encoder, scorer=scorer).ranking
    for q, d in pairs:
        assert_close(in_blocks[q][d], every[q][d], *SUMS, largest=largest)
    figures = evaluate_retrieval(scorer.encoder, tmp_path / "beir", scorer=scorer, rescore=5)
    assert figures["small"]["recall@10"] <= 1


def test_a_query_that_is_a_document_takes_no_place_of_those_that_are_ranked_anew(tmp_path: Path) -> None:
    texts = sentences(30, seed=9)
    documents = {f"d{i}": text for i, text in enumerate(texts)}
    queries = {"d0": texts[0], "d1": texts[1], "q": texts[2]}
    write_collection(tmp_path / "own", documents, queries, {q: {"d3": 1} for q in queries})
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    collection = read_collection(tmp_path / "own")
    assert collection.own_documents == {"d0", "d1"}
    ranking = search(scorer.encoder, collection, scorer.encoder, scorer=scorer, rescore=5).ranking
    assert {query: len(found) for query, found in ranking.items()} == {"d0": 5, "d1": 5, "q": 5}
    assert all(query not in found for query, found in ranking.items())


@pytest.mark.parametrize("damage", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_refused(tmp_path: Path, damage: float) -> None:
    """Ranks would take them for an order like another."""
    params = random_iem(32, np.random.default_rng(0), 8) | {"cosine": np.float32(damage)}
    scorer = PairScorer(make_decoder(), params)
    vectors = scorer.encoder.encode(["the river", "a stone"])
    write_collection(tmp_path / "c", {"d": "the river"}, {"q": "a stone"}, {"q": {"d": 1}})
    for ask in (
        lambda: scorer.score(["the river"], ["a stone"], True),
        lambda: scorer.rescore(vectors, vectors[None].repeat(2, 0)),
        lambda: scorer.every(vectors, vectors),
        lambda: evaluate_retrieval(scorer.encoder, tmp_path, scorer=scorer, rescore=0),
    ):
        with pytest.raises(UserError, match="interaction module gives NaN or infinity for .* pairs"):
            ask()
