"""jdistill.mine: triplets of all positives, with scores, read by training as they were written; a job that was killed as it scored."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, save_encoder
from cross_encoder_setting import save_cross_encoder

from jdistill import mine as command
from jdistill.data.sets.triplets import read_triplets
from jdistill.mine import main
from jdistill.retrieval.bm25 import bm25_search
from jdistill.retrieval.mined_triplets import write_scored
from jdistill.retrieval.mining import Rules, mine

PAIRS = [
    ("how to copy a folder", "copytree copies a whole folder"),
    ("what is a list", "a list is a sequence of items"),
    ("how to remove a list of items", "del removes items of a list"),
]


def mined(folder: Path, name: str, *flags: str) -> int:
    (folder / "pairs.jsonl").write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in PAIRS))
    common = ["--by", "bm25", "--count", "2", "--cache_dir", str(folder / "cache"), "--out", str(folder / name)]
    return main(["--pairs", str(folder / "pairs.jsonl"), *common, *flags])


def listed(path: Path) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The (query, passage) pairs of all rows, and their scores."""
    triplets = read_triplets(str(path))
    rows = zip(triplets.anchors, triplets.positives, triplets.negatives, strict=True)
    pairs = [(query, text) for query, positive, negatives in rows for text in (positive, *negatives)]
    return pairs, np.concatenate([*map(np.array, triplets.scores)])


def test_the_scores_of_one_and_of_two_cross_encoders(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs the torch extra")
    models = [save_cross_encoder(tmp_path / f"model{i}", seed=i, activation_fn=torch.nn.Identity()) for i in range(2)]
    one, other = (str(tmp_path / f"model{i}") for i in range(2))
    assert mined(tmp_path, "one.jsonl", "--score_by", one) == 0
    pairs, scores = listed(tmp_path / "one.jsonl")
    assert len(pairs) == 5
    np.testing.assert_allclose(scores, models[0].predict(pairs), rtol=1e-5, atol=1e-6)
    assert mined(tmp_path, "both.jsonl", "--score_by", one, other) == 0
    same, scores = listed(tmp_path / "both.jsonl")
    by_model = np.array([model.predict(pairs) for model in models], np.float64)
    standard = (by_model - by_model.mean(1, keepdims=True)) / by_model.std(1, keepdims=True)
    assert same == pairs
    np.testing.assert_allclose(scores, standard.mean(0), rtol=1e-4, atol=1e-5)
    # What is mined is the same with scores and without.
    assert mined(tmp_path, "plain.jsonl") == 0
    plain, scored = read_triplets(str(tmp_path / "plain.jsonl")), read_triplets(str(tmp_path / "one.jsonl"))
    assert (plain.anchors, plain.positives, plain.negatives) == (scored.anchors, scored.positives, scored.negatives)
    assert plain.scores == [] and not list(tmp_path.glob("*.part"))


def test_a_positive_of_the_same_question_in_another_spelling_is_no_negative(tmp_path: Path) -> None:
    rows = [
        ("How to remove items of a list?", "del removes items of a list"),
        ("how to remove items of a list", "pop removes items of a list"),
        ("what is a list", "a list is a sequence of items"),
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in rows))
    assert main(["--pairs", str(tmp_path / "pairs.jsonl"), "--by", "bm25", "--out", str(tmp_path / "t.jsonl")]) == 0
    mined = read_triplets(str(tmp_path / "t.jsonl"))
    assert list(zip(mined.anchors, mined.positives, strict=True)) == rows
    assert mined.negatives[:2] == [[rows[2][1]]] * 2 and set(mined.negatives[2]) == {rows[0][1], rows[1][1]}
    own, lists = command.positives_of_each({"a": [3, 5], "b": [1], "A!": [4, 3]})
    assert own == [3, 5, 1, 4, 3] and lists == [[3, 5, 4], [3, 5, 4], [1], [3, 5, 4], [3, 5, 4]]
    assert lists[0] is lists[1] is lists[3]  # as many lists of n rows would be n² of them


def test_each_positive_of_a_query_gives_a_triplet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = PAIRS[2][0]
    rows = [*PAIRS, (query, "del removes items of a list"), (query, "pop takes one off a list"), ("no answer", "")]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in rows))
    flags = ["--pairs", str(tmp_path / "pairs.jsonl"), "--by", "bm25", "--count", "2"]
    said: list[str] = []
    monkeypatch.setattr(command.log, "warning", lambda message, *of: said.append(message % of))
    assert main([*flags, "--out", str(tmp_path / "t.jsonl")]) == 0
    mined = read_triplets(str(tmp_path / "t.jsonl"))
    assert list(zip(mined.anchors, mined.positives, strict=True)) == [*PAIRS, (query, "pop takes one off a list")]
    assert mined.negatives[2] == mined.negatives[3] != [] and "skipped 1 positive blank" in said[0]
    assert not set(mined.positives[2:]) & set(mined.negatives[2])

    def lengths(of_queries: list[str], of_passages: list[str]) -> np.ndarray:
        return np.array([len(q) + 100 * len(p) for q, p in zip(of_queries, of_passages, strict=True)], np.float32)

    records = [
        {"query": query, "positive": "x", "negatives": ["a", "b c"]},
        {"query": query, "positive": "y z", "negatives": ["a", "b c"]},
        {"query": "q", "positive": "", "negatives": []},
    ]
    write_scored(records[2:], tmp_path / "none.jsonl", lengths)
    assert (tmp_path / "none.jsonl").read_text() == ""
    write_scored(records, tmp_path / "s.jsonl", lengths)
    pairs, scores = listed(tmp_path / "s.jsonl")
    assert [text for _, text in pairs] == ["x", "a", "b c", "y z", "a", "b c"]
    np.testing.assert_array_equal(scores, [len(q) + 100 * len(p) for q, p in pairs])


def test_a_file_that_came_meanwhile_is_not_replaced_and_what_was_mined_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, search = tmp_path / "t.jsonl", command.bm25_search

    def slow(*job: object) -> object:
        out.write_text("a user's own")
        return search(*job)

    monkeypatch.setattr(command, "bm25_search", slow)
    assert mined(tmp_path, "t.jsonl") == 2
    said = capsys.readouterr().err
    assert "is there already; choose another name" in said and "goes on with it" in said
    assert out.read_text() == "a user's own" and len(list(tmp_path.glob("t.jsonl.*.part"))) == 1
    assert mined(tmp_path, "t.jsonl", "--overwrite") == 0
    assert len(read_triplets(str(out))) == len(PAIRS) and not list(tmp_path.glob("*.part"))


def test_a_column_of_no_corpus_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mined(tmp_path, "t.jsonl", "--column", "text") == 2
    assert "--column=text is the text column of --corpus, which is not given" in capsys.readouterr().err


def test_triplets_get_a_name_that_they_are_read_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mined(tmp_path, "m.jsonl.gz") == 2
    assert "name a file that ends in .jsonl" in capsys.readouterr().err


def test_a_model_that_scores_no_pairs_is_known_before_anything_is_mined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_encoder(make_encoder(), tmp_path / "encoder")
    assert mined(tmp_path, "t.jsonl", "--score_by", str(tmp_path / "encoder")) == 2
    assert "is a bert that reads one text" in capsys.readouterr().err
    assert not list(tmp_path.glob("t.jsonl*"))


def test_a_job_killed_as_it_scores_goes_on_behind_the_mining(tmp_path: Path) -> None:
    passages = [passage for _, passage in PAIRS]
    queries, positives = [query for query, _ in PAIRS] + ["no answer"], [[0], [1], [2], []]
    search, score_of = bm25_search(queries, passages, 3)
    searched: list[int] = []

    def counted(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        searched.append(start)
        return search(start, stop)

    def killed(of_queries: list[str], of_passages: list[str]) -> np.ndarray:
        raise KeyboardInterrupt

    def lengths(of_queries: list[str], of_passages: list[str]) -> np.ndarray:
        return np.array([len(q) + 100 * len(p) for q, p in zip(of_queries, of_passages, strict=True)], np.float32)

    job = (queries, positives, passages, counted, score_of, Rules(2), "bm25", tmp_path / "t.jsonl")
    with pytest.raises(KeyboardInterrupt):
        mine(*job, partial(write_scored, score=killed))
    assert not (tmp_path / "t.jsonl").exists() and not list(tmp_path.glob(".jdistill-*"))
    (tmp_path / ".jdistill-abcd1234-t.jsonl.written").touch()  # another job's, of another process
    (part,) = tmp_path.glob("t.jsonl.*.part")
    (tmp_path / f".jdistill-abcd1234-{part.stem}.written").touch()  # this job's, killed
    mine(*job, partial(write_scored, score=lengths))
    assert [path.name for path in tmp_path.glob(".jdistill-*")] == [".jdistill-abcd1234-t.jsonl.written"]
    assert searched == [0]
    pairs, scores = listed(tmp_path / "t.jsonl")
    np.testing.assert_array_equal(scores, [len(q) + 100 * len(p) for q, p in pairs])
    assert (
        read_triplets(str(tmp_path / "t.jsonl")).anchors == queries[:3]
    )  # a query without a positive has nothing to score
