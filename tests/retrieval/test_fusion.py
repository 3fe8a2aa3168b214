"""BM25 beside vectors: rankings fused by reciprocal ranks, in jdistill.search too, and BM25's own figures on a collection."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, save_encoder, sentences

from jdistill import search
from jdistill.encoder import loading
from jdistill.evals.lexical import evaluate_bm25
from jdistill.evals.suite import evaluate, results_table
from jdistill.retrieval import index
from jdistill.retrieval.fusion import fuse


def test_fused_as_a_naive_loop_has_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        rankings = [rng.permutation(12)[: rng.integers(0, 12)] for _ in range(3)]
        padded = [np.concatenate([rows, np.full(12 - len(rows), -1)]) for rows in rankings]
        scores, rows = fuse(padded)
        expected = {
            row: sum(1 / (61 + list(ranking).index(row)) for ranking in rankings if row in ranking)
            for row in set(np.concatenate(rankings).tolist())
        }
        assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == pytest.approx(expected)
        assert (np.diff(scores) <= 0).all()


def test_of_equals_the_first_ranking_decides() -> None:
    scores, rows = fuse([np.array([4, 2]), np.array([7, 9])])
    assert rows.tolist() == [4, 7, 2, 9] and scores.tolist() == [1 / 61, 1 / 61, 1 / 62, 1 / 62]
    assert [part.tolist() for part in fuse([np.array([-1, -1])])] == [[], []]


def test_a_hybrid_search_finds_the_word_that_vectors_miss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [*sentences(300), "the zygote divides"]
    save_encoder(make_encoder(num_layers=1), tmp_path / "export")
    model = loading.load(str(tmp_path / "export"))
    index.build_index(model.encode(texts)).save(tmp_path / "index", texts, model.fingerprint())
    alone = [text for _, text in search.answer(tmp_path, "what is a zygote", 100)]
    (first, text), *_ = search.answer(tmp_path, "what is a zygote", 3, hybrid=True)
    place = alone.index(texts[-1]) + 1 if texts[-1] in alone else math.inf
    assert text == texts[-1] != alone[0]  # of random weights
    assert first == pytest.approx(1 / 61 + 1 / (60 + place))
    assert search.main(["--workdir", str(tmp_path), "--hybrid", "--k", "1", "what is a zygote"]) == 0
    assert capsys.readouterr().out.endswith(f"{texts[-1]}\n")


@pytest.mark.parametrize("kind", ["Flat", "IVF2,Flat"])
def test_a_repeated_text_is_one_answer_and_its_copies_are_fused(tmp_path: Path, kind: str) -> None:
    """As in a folder of jdistill.embed: nine copies of the nearest text, before and behind the others."""
    others = [*sentences(20), "a zygote divides"]
    near = "what is a zygote"
    texts = [near] * 5 + others + [near] * 4
    save_encoder(make_encoder(num_layers=1), tmp_path / "export")
    model = loading.load(str(tmp_path / "export"))
    index.build_index(model.encode(texts), kind, "nprobe=2" * (kind != "Flat")).save(
        tmp_path / "index", texts, model.fingerprint()
    )
    cosines = index.row_cosines(model.encode(others), model.encode([near] * len(others)))
    expected = [near, *(others[i] for i in np.argsort(-cosines))]
    for k in (1, 2, 3, 12, len(expected), 100):
        answers = search.answer(tmp_path, near, k)
        assert [text for _, text in answers] == expected[:k]
    assert [score for score, _ in answers] == pytest.approx([1, *sorted(cosines.tolist(), reverse=True)], abs=1e-5)
    fused = search.answer(tmp_path, near, 100, hybrid=True)
    assert len(fused) == len(expected) and {text for _, text in fused} == set(expected)
    place = expected.index(others[-1]) + 1
    assert fused[0] == (pytest.approx(2 / 61), near)
    assert dict((text, score) for score, text in fused)[others[-1]] == pytest.approx(1 / (60 + place) + 1 / 62)


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    (tmp_path / "birds" / "qrels").mkdir(parents=True)
    documents = [
        "A robin sings in the garden.",
        "The heron fishes.",
        "Owls hunt by night.",
        "A garden has a robin, a robin!",
    ]
    rows = [json.dumps({"_id": f"d{i}", "title": "", "text": text}) for i, text in enumerate(documents)]
    (tmp_path / "birds" / "corpus.jsonl").write_text("\n".join(rows))
    queries = {"q0": "robin", "q1": "heron", "q2": "penguin"}
    (tmp_path / "birds" / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": name, "text": text}) for name, text in queries.items())
    )
    judged = [("q0", "d0"), ("q1", "d1"), ("q2", "d2")]
    (tmp_path / "birds" / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t1\n" for q, d in judged)
    )
    return tmp_path


def test_bm25_on_a_collection(collection: Path) -> None:
    found = evaluate_bm25(collection)["birds"]
    # robin: the text that says it twice first, d0 in place two; heron: first; penguin: no text has the word.
    assert found["ndcg@10"] == pytest.approx((1 / math.log2(3) + 1 + 0) / 3)
    assert found["mrr@10"] == pytest.approx((1 / 2 + 1 + 0) / 3) and found["recall@10"] == pytest.approx(2 / 3)


def test_bm25_stands_beside_a_model(collection: Path) -> None:
    results = evaluate(make_encoder(num_layers=1), beir=str(collection))
    assert results["bm25_retrieval"]["birds"]["ndcg@10"] == evaluate_bm25(collection)["birds"]["ndcg@10"]
    line = next(line for line in results_table(results).splitlines() if "BM25's ndcg@10" in line)
    assert float(line.split()[-1]) == pytest.approx(results["bm25_retrieval"]["birds"]["ndcg@10"], abs=1e-4)
