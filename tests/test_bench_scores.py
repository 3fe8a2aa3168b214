"""bench/scores.py: what is held out is a collection, and each loss has the rate that is best there."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
from commands import ROOT

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.evals.lexical import evaluate_bm25

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import record
import scores
import scores_pairs
from record import check_settings

HELD_OUT = [
    {"query": "who bakes bread", "positive": "the baker bakes bread", "negatives": ["a ship sails", "rain falls"]},
    {
        "query": "what sails the sea",
        "positive": "a ship sails",
        "negatives": ["the baker bakes bread", "the sea is salt"],
    },
]


def test_pairs_held_out_are_a_collection(tmp_path: Path) -> None:
    pairs = [{key: row[key] for key in ("query", "positive")} for row in HELD_OUT]
    pairs.append({"query": "what sails the sea", "positive": "boats sail the sea"})  # a second right passage
    scores_pairs.write_rows(tmp_path / "held_out.jsonl", pairs)
    folder = scores_pairs.write_dev(tmp_path, HELD_OUT)
    texts = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    expected = ["a ship sails", "boats sail the sea", "rain falls", "the baker bakes bread", "the sea is salt"]
    assert sorted(texts) == expected
    judged = (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]
    assert [texts[int(line.split()[1][1:])] for line in judged] == [row["positive"] for row in pairs]
    assert 0.5 < scores.mean_ndcg(evaluate_bm25(str(folder))) <= 1


def test_what_is_held_out_is_no_bodys_passage_and_the_reranker_learns_from_other_queries() -> None:
    positives = {f"q{i}": [f"p{i}", f"p{(i + 1) % 60}"] for i in range(60)}  # each passage is two queries'
    parts = scores_pairs.split_queries(positives, 5, 20, 15)
    assert [len(parts[name]) for name in ("held_out", "train", "reranker")] == [5, 20, 15]
    apart = {passage for query in parts["held_out"] for passage in positives[query]}
    for name in ("train", "reranker"):
        assert not apart & {passage for query in parts[name] for passage in positives[query]}
    assert not set(parts["train"]) & set(parts["reranker"])
    assert scores_pairs.split_queries(positives, 5, 20, 15) == parts


def test_every_labelled_passage_of_a_query_is_right_and_another_setting_needs_another_folder(tmp_path: Path) -> None:
    textbooks, questions = tmp_path / "pairs.jsonl", tmp_path / "qnli.jsonl"
    scores_pairs.write_rows(textbooks, [{"query": "a", "positive": text} for text in ("one", "two", "one")])
    rows = [("a", "three", "entailment"), ("b", "four", "not_entailment"), ("c", "two", "entailment")]
    scores_pairs.write_rows(questions, [dict(zip(("question", "sentence", "label"), row, strict=True)) for row in rows])
    flags = argparse.Namespace(**dict.fromkeys(scores_pairs.DECIDES, 1))
    flags.workdir, flags.pairs, flags.questions = tmp_path, textbooks, questions
    assert scores_pairs.pairs_of(flags) == {"a": ["one", "two", "three"], "c": ["two"]}
    mined = [
        {"query": q, "positive": p, "negatives": n}
        for q, p, n in (("a", "one", []), ("a", "two", ["x"]), ("a", "three", ["x"]))
    ]
    mined.append({"query": "c", "positive": "two", "negatives": ["x"]})
    scores_pairs.write_rows(tmp_path / "each-positive-triplets.jsonl", mined)
    first = scores.mined(flags, "", "", "triplets.jsonl")
    assert [(row["query"], row["positive"]) for row in first] == [("a", "two"), ("c", "two")]  # a triplet a query
    assert scores_pairs.read_rows(tmp_path / "triplets.jsonl") == first  # the file that a run is given
    scores_pairs.write_rows(tmp_path / "train.jsonl", [])
    with pytest.raises(UserError, match="begun before its settings were kept; choose another --workdir"):
        check_settings(tmp_path, {"triplets": 1}, "train.jsonl")
    for _ in range(2):
        check_settings(tmp_path / "new", {"triplets": 1, "rates": (1e-4,), "pairs": textbooks}, "train.jsonl")
    with pytest.raises(UserError, match="--triplets 1 there, 2 now. Choose another --workdir"):
        check_settings(tmp_path / "new", {"triplets": 2, "rates": (1e-4,), "pairs": textbooks}, "train.jsonl")


def test_rows_are_kept_apart_by_all_that_decides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    flags = argparse.Namespace(**(dict.fromkeys(scores_pairs.DECIDES, 1) | {"collection": tmp_path / "astronomy"}))
    flags.extra, flags.by, flags.student = [], "bm25", "/a/run/export"
    for accuracy in ({}, {"reranker": 60.0}):
        about = scores.settings_of(flags, 5, 2, accuracy)
        record.keep_rows("scores", "bench", [{"row": "kl", "seed": 0}], ("row", "seed"), **about)
        assert (about["mined by"], about["student"], about["triplets"]) == ("bm25", "run/export", 5)
        assert ("reranker_rate" in about) == bool(accuracy)


def test_the_rate_is_chosen_on_what_is_held_out_and_the_collection_read_at_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev = {(1e-5, 0): 0.3, (3e-5, 0): 0.5, (1e-4, 0): 0.4, (3e-5, 1): 0.1}
    read: list[str] = []

    def tuned(_: argparse.Namespace, scorer: str, loss: str, rate: float, seed: int) -> Path:
        run = tmp_path / f"{scorer}-{loss}-{rate:g}-{seed}"
        run.mkdir(exist_ok=True)
        write_json(run / "results.json", {"retrieval": {"dev": {"ndcg@10": dev[rate, seed]}}})
        return run

    def kept(_: argparse.Namespace, name: str, source: str, folder: Path) -> float:
        read.append(name)
        return 0.25

    monkeypatch.setattr(scores, "tune", tuned)
    monkeypatch.setattr(scores, "kept_ndcg", kept)
    flags = argparse.Namespace(rates=[1e-5, 3e-5, 1e-4], seeds=[0, 1], collection=tmp_path)
    assert scores.read_way(flags, "reranker", "kl") == [
        {"seed": 0, "rate": 3e-5, "dev": 0.5, "ndcg@10": 0.25},
        {"seed": 1, "rate": 3e-5, "dev": 0.1, "ndcg@10": 0.25},
    ]
    assert read == ["reranker-kl-3e-05-0", "reranker-kl-3e-05-1"]
