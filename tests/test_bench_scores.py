"""bench/scores.py: what is held out is a collection, and each loss has the rate that is best there."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
from commands import ROOT

from jdistill.core.files import write_json
from jdistill.evals.lexical import evaluate_bm25

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import scores

HELD_OUT = [
    {"query": "who bakes bread", "positive": "the baker bakes bread", "negatives": ["a ship sails", "rain falls"]},
    {
        "query": "what sails the sea",
        "positive": "a ship sails",
        "negatives": ["the baker bakes bread", "the sea is salt"],
    },
]


def test_pairs_held_out_are_a_collection(tmp_path: Path) -> None:
    folder = scores.write_dev(argparse.Namespace(workdir=tmp_path), HELD_OUT)
    texts = [json.loads(line)["text"] for line in (folder / "corpus.jsonl").read_text().splitlines()]
    assert sorted(texts) == ["a ship sails", "rain falls", "the baker bakes bread", "the sea is salt"]
    # Of the second query's words the sea has two, in the ship's place: rank 2, a gain of 1 / log2(3).
    assert scores.mean_ndcg(evaluate_bm25(str(folder))) == pytest.approx((1 + 0.6309) / 2, abs=1e-3)


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
