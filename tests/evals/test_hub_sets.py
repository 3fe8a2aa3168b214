"""Evaluation sets by datasets id, on folders laid out as the repositories are: C-MTEB's pairs and retrieval, MTEB's subsets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import numpy as np
import pytest
from conftest import make_decoder, save_encoder

from jdistill import evaluate
from jdistill.core.errors import UserError
from jdistill.data.sets.collections import query_texts, read_collections
from jdistill.data.sets.pairs import read_pairs, train_and_test
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.labelled_source import evaluate_labelled, read_labelled
from jdistill.export.interaction import save_interaction
from jdistill.models.interaction import random_iem

DOCUMENTS = [("d1", "the river ends in the sea"), ("d2", "a stone is hard"), ("d3", "birds fly south")]
QUERIES = [("q1", "where does the river end"), ("q2", "what is hard"), ("q3", "who asks this")]
JUDGED = [("q1", "d1", 1), ("q2", "d2", 2), ("q2", "d3", 0), ("q4", "d1", 1), ("q1", "gone", 1)]
PAIRS = [("a b", "a b", 1), ("c d", "e f", 0), ("g h", "g h", 1), ("i j", "k l", 0), ("m", "n", 1)]


def repository(folder: Path, files: dict[str, list[dict[str, Any]]], subsets: dict[str, dict[str, str]]) -> None:
    """A dataset repository: subset -> split -> file, said in its README as the hub's are; a file has rows."""
    folder.mkdir(parents=True)
    for name, rows in files.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["---", "configs:"]
    for subset, splits in subsets.items():
        lines += [f"- config_name: {subset}", "  data_files:"]
        for split, name in splits.items():
            lines += [f"  - split: {split}", f"    path: {name}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


def chinese(hub: Path, judged_split: str = "dev") -> None:
    """C-MTEB/Tiny and C-MTEB/Tiny-qrels."""
    texts = {
        "corpus.jsonl": [{"id": i, "text": text} for i, text in DOCUMENTS],
        "queries.jsonl": [{"id": i, "text": text} for i, text in QUERIES],
    }
    repository(hub / "C-MTEB" / "Tiny", texts, {"default": {"corpus": "corpus.jsonl", "queries": "queries.jsonl"}})
    judged = {"q.jsonl": [{"qid": q, "pid": d, "score": grade} for q, d, grade in JUDGED]}
    repository(hub / "C-MTEB" / "Tiny-qrels", judged, {"default": {judged_split: "q.jsonl"}})


@pytest.fixture(params=[True, False], ids=["offline", "online"])
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A folder whose owner/name is what that id loads, by datasets' own loading code."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", request.param)
    monkeypatch.setattr("jdistill.data.text.hub.hub_answers", lambda: True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    load, subsets = datasets.load_dataset, datasets.get_dataset_config_names
    monkeypatch.setattr(datasets, "load_dataset", lambda name, *more: load(str(tmp_path / "hub" / name), *more))
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda name: subsets(str(tmp_path / "hub" / name)))
    (tmp_path / "hub").mkdir()
    return tmp_path / "hub"


def test_c_mteb_keeps_texts_as_splits_and_judgements_beside(hub: Path) -> None:
    chinese(hub)
    (found,) = read_collections("C-MTEB/Tiny")
    assert found.name == "Tiny" and found.documents == dict(DOCUMENTS)
    assert found.queries == dict(QUERIES[:2]), "a query without a relevant document is left out"
    assert found.relevant == {"q1": {"d1": 1, "gone": 1}, "q2": {"d2": 2, "d3": 0}}
    assert list(query_texts("C-MTEB/Tiny")) == [text for _, text in QUERIES]


@pytest.mark.parametrize("judgements", ["default", "qrels"])
def test_mteb_keeps_all_as_subsets(hub: Path, judgements: str) -> None:
    files = {
        "corpus.jsonl": [{"_id": i, "title": "T", "text": text} for i, text in DOCUMENTS],
        "queries.jsonl": [{"_id": i, "text": text} for i, text in QUERIES],
        "train.jsonl": [{"query-id": "q3", "corpus-id": "d1", "score": 1.0}],
        "test.jsonl": [{"query-id": q, "corpus-id": d, "score": float(grade)} for q, d, grade in JUDGED],
    }
    subsets = {
        judgements: {"train": "train.jsonl", "test": "test.jsonl"},
        "corpus": {"corpus": "corpus.jsonl"},
        "queries": {"queries": "queries.jsonl"},
    }
    repository(hub / "mteb" / "tiny", files, subsets)
    (by_train,) = read_collections("mteb/tiny:train")
    assert by_train.relevant == {"q3": {"d1": 1}}
    (found,) = read_collections("mteb/tiny")
    assert found.documents["d2"] == "T a stone is hard"
    assert found.relevant == {"q1": {"d1": 1, "gone": 1}, "q2": {"d2": 2, "d3": 0}}, "the test split's"


def test_what_a_collection_by_id_lacks_is_named(hub: Path) -> None:
    chinese(hub, judged_split="train")
    with pytest.raises(
        UserError, match="--beir=C-MTEB/Tiny: C-MTEB/Tiny-qrels has no split test or dev or validation, only train"
    ):
        list(read_collections("C-MTEB/Tiny"))
    repository(hub / "o" / "plain", {"a.jsonl": [{"text": "x"}]}, {"default": {"train": "a.jsonl"}})
    with pytest.raises(UserError, match="o/plain: a retrieval collection has corpus and queries .* splits train"):
        list(query_texts("o/plain"))
    both = {"corpus": "c.jsonl", "queries": "q.jsonl"}
    named = {"c.jsonl": [{"id": "d", "body": "x"}], "q.jsonl": [{"id": "q", "body": "x"}]}
    repository(hub / "o" / "odd", named, {"default": both})
    with pytest.raises(UserError, match="--beir: o/odd corpus: no column text; there are id, body"):
        list(read_collections("o/odd"))
    unnamed = {"c.jsonl": [{"id": "d", "text": "x"}], "q.jsonl": [{"id": None, "text": "x"}]}
    repository(hub / "o" / "unnamed", unnamed, {"default": both})
    graded = {"r.jsonl": [{"qid": "q1", "pid": "d1", "score": 0.5}]}
    for name in ("unnamed-qrels", "half-qrels"):
        repository(hub / "o" / name, graded, {"default": {"test": "r.jsonl"}})
    with pytest.raises(UserError, match="o/unnamed queries row 1: its id is None"):
        list(query_texts("o/unnamed"))
    with pytest.raises(UserError, match="--beir=o/nowhere: "):
        list(query_texts("o/nowhere"))
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        with pytest.raises(UserError, match="HF_HUB_OFFLINE is set and no copy is cached"):
            list(query_texts("o/nowhere"))
    subsets = {"ar-corpus": {"corpus": "c.jsonl"}, "fr-corpus": {"corpus": "c.jsonl"}}
    repository(hub / "o" / "many", {"c.jsonl": [{"id": "d", "text": "x"}]}, subsets)
    with pytest.raises(
        UserError, match="o/many: " + ("" if huggingface_hub.constants.HF_HUB_OFFLINE else ".* subsets ar-")
    ):
        list(query_texts("o/many"))
    texts = {"c.jsonl": [{"id": "d1", "text": "x"}], "q.jsonl": [{"id": "q1", "text": "x"}]}
    repository(hub / "o" / "half", texts, {"default": both})
    with pytest.raises(UserError, match="o/half-qrels test row 1: score is 0.5; a whole number is needed"):
        list(read_collections("o/half"))


def test_pairs_of_one_row_of_lists(hub: Path) -> None:
    one = {name: [row[i] for row in PAIRS] for i, name in enumerate(("sent1", "sent2", "labels"))}
    repository(hub / "C-MTEB" / "OCNLI", {"v.jsonl": [one]}, {"default": {"validation": "v.jsonl"}})
    found = read_pairs("C-MTEB/OCNLI", "symmetric")
    assert list(zip(found.queries, found.passages, found.positive, strict=True)) == [
        (a, b, bool(c)) for a, b, c in PAIRS
    ]
    assert set(found.splits) == {""}
    uneven = one | {"labels": [1]}
    repository(hub / "o" / "uneven", {"v.jsonl": [uneven]}, {"default": {"validation": "v.jsonl"}})
    with pytest.raises(UserError, match="o/uneven row 1: lists of 5, 5, 1 entries are no pairs"):
        read_pairs("o/uneven", "symmetric")


def test_a_datasets_splits_are_those_of_its_pairs(hub: Path) -> None:
    rows = [{"sentence1": a, "sentence2": b, "label": c} for a, b, c in PAIRS]
    hidden = [row | {"label": -1} for row in rows]
    splits = {"train": "a.jsonl", "validation": "b.jsonl", "test": "c.jsonl"}
    files = {"a.jsonl": rows[:3], "b.jsonl": rows[3:], "c.jsonl": hidden}
    repository(hub / "o" / "pairs", files, {"default": splits})
    pairs = read_pairs("o/pairs", "config.symmetric", ("train", "validation"))
    train, test = train_and_test(pairs, "train", "validation", 0, "config.symmetric")
    assert train.queries == ["a b", "c d", "g h"] and test.queries == ["i j", "m"]
    alone = read_pairs("o/pairs", "config.symmetric", ("dev", "test"))
    assert len(alone) == 3 and set(alone.splits) == {""}, (
        "without these splits the train split, of which queries are held out"
    )
    with pytest.raises(UserError, match="no split 'test'; there are train with labelled pairs .--config.train_split"):
        train_and_test(read_pairs("o/pairs", "symmetric", ("train", "test")), "train", "test", 0, "symmetric")
    assert read_labelled("o/pairs", "symmetric", "validation").test.positive == [False, True]
    with pytest.raises(UserError, match="has the splits train, validation, test: --test_split"):
        read_labelled("o/pairs", "symmetric")
    repository(hub / "o" / "train_alone", {"a.jsonl": rows}, {"default": {"train": "a.jsonl"}})
    with pytest.raises(UserError, match="o/train_alone: --test_split=test is none of its splits"):
        read_labelled("o/train_alone", "symmetric", "test")
    assert len(read_labelled("o/train_alone", "symmetric", "train").test) == 5
    with pytest.raises(UserError, match="holds no usable row; skipped: {'without a label': 5}"):
        read_labelled("o/pairs", "symmetric", "test")


class Letters:
    """A text's vector counts its letters."""

    num_params, dim = 0, 26

    def prompt_for(self, role: str) -> str | None:
        return None

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        return np.array([[text.count(chr(ord("a") + i)) for i in range(26)] for text in texts], np.float32)


def write_pairs(path: Path, rows: list[tuple[str, str, int]], splits: Sequence[str] = ()) -> str:
    cells = [{"sentence1": a, "sentence2": b, "label": c} for a, b, c in rows]
    if splits:
        cells = [row | {"split": split} for row, split in zip(cells, splits, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in cells))
    return str(path)


def test_average_precision_needs_no_threshold_and_the_rest_does(tmp_path: Path) -> None:
    # By cosine two positives come first, at 1; "m", "n" is the last, beside both negatives, at 0.
    path = write_pairs(tmp_path / "own.jsonl", PAIRS)
    expected = 100 * (2 / 3 * 1 + 1 / 3 * 3 / 5)
    whole = {"cosine": {"ap": pytest.approx(expected), "prior": 60.0, "pairs": 5}}
    found = read_labelled(path, "symmetric")
    assert found.name == "own" and evaluate_labelled(Letters(), found) == whole
    assert evaluate_labelled(Letters(), read_labelled(path, "symmetric", "test", "dev")) == whole, "it has no splits"
    path = write_pairs(tmp_path / "split.jsonl", PAIRS + PAIRS, 5 * ["dev"] + 5 * ["test"])
    figures = evaluate_labelled(Letters(), read_labelled(path, "symmetric", "test", "dev"))["cosine"]
    assert figures["accuracy"] == 80.0 and figures["precision"] == 100.0
    assert figures["recall"] == pytest.approx(200 / 3) and figures["ap"] == pytest.approx(expected)
    alone = write_pairs(tmp_path / "alone.jsonl", PAIRS, 5 * ["dev"])
    assert evaluate_labelled(Letters(), read_labelled(alone, "symmetric")) == whole
    for source, splits, message in (
        (path, ("", ""), "has the splits dev, test: --test_split names the one"),
        (path, ("test", "train"), "--threshold_split=train is none of its splits with labelled pairs, dev, test"),
        (path, ("test", "test"), "a threshold is chosen on other pairs"),
        (alone, ("", "dev"), "a threshold is chosen on other pairs"),
        (alone, ("test", ""), "--test_split=test is none of its splits"),
    ):
        with pytest.raises(UserError, match=message):
            read_labelled(source, "symmetric", *splits)
    with pytest.raises(UserError, match="all 1 pairs have the same label"):
        read_labelled(write_pairs(tmp_path / "one.jsonl", PAIRS[:1]), "symmetric")


def test_the_command_scores_pairs_and_collections_by_id(
    hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chinese(hub)
    one = {name: [row[i] for row in PAIRS] for i, name in enumerate(("sent1", "sent2", "labels"))}
    repository(hub / "C-MTEB" / "OCNLI", {"v.jsonl": [one]}, {"default": {"validation": "v.jsonl"}})
    scorer = PairScorer(make_decoder(), random_iem(32, np.random.default_rng(0), 8))
    save_encoder(scorer.encoder, tmp_path / "student")
    save_interaction(scorer, tmp_path / "student")
    sets = ["--symmetric=C-MTEB/OCNLI", "--asymmetric=C-MTEB/OCNLI", "--beir=C-MTEB/Tiny"]
    given = ["--model", str(tmp_path / "student"), *sets, "--rescore=all", "--out", str(tmp_path / "r.json")]
    assert evaluate.main(given) == 0
    results = json.loads((tmp_path / "r.json").read_text())
    queries, passages, labels = zip(*PAIRS, strict=True)
    assert list(results["labelled_pairs"]) == ["OCNLI", "OCNLI-asymmetric"] and list(results["retrieval"]) == ["Tiny"]
    for name, symmetric in (("OCNLI", True), ("OCNLI-asymmetric", False)):
        logits = scorer.score(queries, passages, symmetric)
        order = np.argsort(-logits, kind="stable")
        right = np.array(labels)[order]
        ap = 100 * np.sum(right * np.cumsum(right) / np.arange(1, 6)) / right.sum()
        assert results["labelled_pairs"][name]["module"]["ap"] == pytest.approx(ap)
    out = capsys.readouterr().out
    assert "Labelled pairs, OCNLI, by module" in out
    assert "Retrieval, Tiny, all documents ranked anew by the module" in out
    assert evaluate.main(["--model", str(tmp_path / "student"), "--beir=C-MTEB/Tiny", "--test_split=test"]) == 2
    assert "of --symmetric or --asymmetric, which is not given" in capsys.readouterr().err
    assert evaluate.main(["--model", "no/such-model", "--beir=C-MTEB/Nothing"]) == 2
    assert "--beir=C-MTEB/Nothing" in capsys.readouterr().err, "before the model is asked for"
