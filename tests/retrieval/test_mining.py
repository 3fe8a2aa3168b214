"""Mining: which passages become negatives, what is left out, and a killed job that goes on."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from commands import HANG

from jdistill.core.errors import UserError
from jdistill.data.sets.triplets import read_triplets
from jdistill.mine import main
from jdistill.retrieval import mining
from jdistill.retrieval.bm25 import bm25_search
from jdistill.retrieval.mining import Rules, mine, pick, read_mined, scored_by

PASSAGES = ["the right answer", "near", "far", "The right answer .", "what is it", "near", "farther"]
SCORES = np.array([0.9, 0.8, 0.7, 0.65, 0.6, 0.5, 0.4])
ROWS = np.array([0, 3, 1, 4, 5, 2, 6])


def picked(rules: Rules) -> list[int]:
    return pick(SCORES, ROWS, [0], 0.9, "What is it ?", PASSAGES, rules)


def test_the_positive_its_copies_the_query_itself_and_repeats_are_left_out() -> None:
    assert picked(Rules(count=8)) == [1, 2, 6]
    assert picked(Rules(count=1)) == [1]


def test_the_window_counts_ranks_without_the_positives() -> None:
    assert picked(Rules(first=2)) == [5, 2, 6]  # passage 5, a copy of passage 1, is now the first of them
    assert picked(Rules(first=4)) == [2, 6]
    assert picked(Rules(last=5)) == [1, 2]


def test_a_percentage_as_a_margin_would_take_what_scores_above_the_positive() -> None:
    Rules(margin=95, relative_margin=1)
    with pytest.raises(UserError, match="relative_margin 95 is no number.* a share, 0 to 1"):
        Rules(relative_margin=95)


def test_margins_forbid_what_scores_near_the_positive() -> None:
    assert picked(Rules(margin=0.25)) == [5, 2, 6]  # passage 1 scores 0.7, its copy 0.6
    assert picked(Rules(margin=0.45)) == [6]
    assert picked(Rules(relative_margin=0.6)) == [2, 6]
    assert picked(Rules(margin=0.1, relative_margin=0.5)) == [6]
    assert pick(SCORES, np.full(7, -1), [0], 0.9, "q", PASSAGES, Rules()) == []
    # A share of a negative score would lie above it: what is forbidden is what is nearer than so far below it.
    below = pick(
        np.array([-0.20, -0.205, -0.22]), np.array([5, 2, 6]), [0], -0.2, "q", PASSAGES, Rules(relative_margin=0.95)
    )
    assert below == [6]


@pytest.mark.parametrize("bad", [{"count": 0}, {"first": 5, "last": 5}, {"first": -1}])
def test_bad_rules_are_refused(bad: dict) -> None:
    with pytest.raises(UserError, match="must be positive and 0 <= first"):
        Rules(**bad)


def test_bm25_finds_shared_words_and_nothing_else() -> None:
    passages = ["red apples grow on trees", "the moon is far", "apples are sweet", "trains run late"]
    search, score_of = bm25_search(["apples on trees", "qqq"], passages, 3)
    scores, rows = search(0, 2)
    assert rows[0, :2].tolist() == [0, 2] and rows[0, 2] == -1 and (rows[1] == -1).all()
    np.testing.assert_allclose(score_of(0, [2, 0]), [scores[0, 1], scores[0, 0]], rtol=1e-5)
    assert score_of(1, [0]).tolist() == [0.0]


def test_the_words_candidates_are_cleared_by_another_s_scores(tmp_path: Path) -> None:
    passages = ["right river", "river as good as right", "river of no use", "nothing"]
    cosine = np.array([0.8, 0.79, 0.3, 0.1])
    search, _ = bm25_search(["river right"], passages, 4)
    rows = search(0, 1)[1][0]
    scores, same = scored_by(search, lambda i, asked: cosine[list(asked)])(0, 1)
    np.testing.assert_array_equal(same[0], rows)
    np.testing.assert_array_equal(scores[0], [cosine[row] if row >= 0 else -np.inf for row in rows])
    rules = Rules(count=3, relative_margin=0.95)
    assert pick(scores[0], same[0], [0], 0.8, "river right", passages, rules) == [2]


def test_a_killed_job_goes_on_and_gives_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "QUERIES_PER_BLOCK", 3)
    passages = [f"passage {i} about {'cats' if i % 2 else 'dogs'}" for i in range(20)]
    queries = [f"{'cats' if i % 2 else 'dogs'} number {i}" for i in range(10)]
    positives = [[i] for i in range(9)] + [[]]
    search, score_of = bm25_search(queries, passages, 10)
    rules = Rules(count=4)
    mine(queries, positives, passages, search, score_of, rules, "bm25", tmp_path / "whole.jsonl")
    found = read_triplets(str(tmp_path / "whole.jsonl"))
    assert len(found) == 9 and found.skipped == {"positive blank": 1}
    assert all(
        len(those) == 4 and positive not in those
        for positive, those in zip(found.positives, found.negatives, strict=True)
    )

    searched: list[int] = []

    def failing(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        searched.append(start)
        if start == 6 and len(searched) == 3:
            raise KeyboardInterrupt
        return search(start, stop)

    with pytest.raises(KeyboardInterrupt):
        mine(queries, positives, passages, failing, score_of, rules, "bm25", tmp_path / "cut.jsonl")
    assert not (tmp_path / "cut.jsonl").exists()
    (part,) = tmp_path.glob("cut.jsonl.*.part")
    with open(part, "a") as file:
        file.write('{"query": "half a li')  # as a kill inside a write leaves it
    mine(queries, positives, passages, failing, score_of, rules, "bm25", tmp_path / "cut.jsonl")
    assert searched == [0, 3, 6, 6, 9]
    assert (tmp_path / "cut.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
    # A part that another searcher left is not gone on with.
    searched.clear()
    with pytest.raises(KeyboardInterrupt):
        mine(queries, positives, passages, failing, score_of, rules, "bm25", tmp_path / "other.jsonl")
    mine(queries, positives, passages, search, score_of, rules, "a model", tmp_path / "other.jsonl")
    assert (tmp_path / "other.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()
    assert len(list(tmp_path.glob("other.jsonl.*.part"))) == 1
    assert json.loads((tmp_path / "cut.jsonl").read_text().splitlines()[0])["query"] == "dogs number 0"


def test_two_runs_at_the_same_job_write_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "QUERIES_PER_BLOCK", 2)
    passages, queries = [f"passage {i} about cats" for i in range(12)], [f"cats {i}" for i in range(8)]
    search, score_of = bm25_search(queries, passages, 10)
    job = (queries, [[i] for i in range(8)], passages)
    mine(*job, search, score_of, Rules(2), "bm25", tmp_path / "whole.jsonl")
    searched: list[int] = []
    other_waits = threading.Event()
    monkeypatch.setattr(mining.log, "info", lambda text, *_: "waiting for it" in text and other_waits.set())

    def slow(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        searched.append(start)
        assert other_waits.wait(HANG)
        return search(start, stop)

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(mine, *job, slow, score_of, Rules(2), "bm25", tmp_path / "both.jsonl") for _ in range(2)]
    assert [run.result() for run in runs] == [None, None] and searched == [0, 2, 4, 6]
    assert (tmp_path / "both.jsonl").read_text() == (tmp_path / "whole.jsonl").read_text()


def test_texts_with_line_separators_of_unicode_are_read_back(tmp_path: Path) -> None:
    odd = ["a\u2028b and more words", "c\u0085d of other words"]
    passages = ["first of them", *odd]
    search, score_of = bm25_search(["which words"], passages, 3)
    mine(["which words"], [[0]], passages, search, score_of, Rules(2), "bm25", tmp_path / "m.jsonl")
    (record,) = read_mined(tmp_path / "m.jsonl", ["which words"], passages) or []
    assert sorted(record["negatives"]) == sorted(odd)


def test_the_command_mines_by_bm25_and_by_an_encoder(tmp_path: Path, real_teacher: str) -> None:
    pairs = [
        ("how to copy a folder", "copytree copies a whole directory"),
        ("what is a list", "a list is a sequence of items"),
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({"query": q, "positive": p}) + "\n" for q, p in pairs))
    (tmp_path / "more.txt").write_text(
        "copying one folder needs a name\nthe moon is far from here\na list of items to buy\n"
    )
    for by in ("bm25", real_teacher):
        out = tmp_path / f"{len(by)}.jsonl"
        flags = [
            "--pairs",
            str(tmp_path / "pairs.jsonl"),
            "--corpus",
            str(tmp_path / "more.txt"),
            "--by",
            by,
            "--count",
            "1",
        ]
        assert main([*flags, "--out", str(out)]) == 0
        found = read_triplets(str(out))
        assert found.positives == [p for _, p in pairs]
        assert found.negatives == [["copying one folder needs a name"], ["a list of items to buy"]], by
        assert main([*flags, "--out", str(out)]) == 2  # nothing is overwritten
