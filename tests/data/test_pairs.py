"""Labelled pairs: which rows and labels are read, what is held out of them, and a query's candidates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
from d2llm_setting import write_pairs

from jdistill.core.errors import UserError
from jdistill.data.sets.candidates import (
    by_query,
    candidates,
    in_turn,
    passages_of,
    without_positive,
)
from jdistill.data.sets.pairs import (
    Pairs,
    read_pairs,
    train_and_test,
    without,
)


def test_candidates_are_what_they_should_be() -> None:
    pairs = Pairs(
        ["a", "a", "a", "b", "b", "c"],
        ["a1", "a2", "no a", "b1", "a1", "c no"],
        [True, True, False, True, False, False],
        [""] * 6,
    )
    queries = by_query(pairs)
    assert queries.texts == ["a", "b"]  # c has no positive
    assert queries.positives == [["a1", "a2"], ["b1"]] and queries.negatives == [["no a"], ["a1"]]
    wrong = without_positive(pairs)
    assert (wrong.texts, wrong.positives, wrong.negatives) == (["c"], [[]], [["c no"]])
    assert passages_of(queries, wrong) == [*passages_of(queries), "c no"]
    passages = passages_of(queries) + [f"other {i}" for i in range(20)] + ["A2."]
    found = candidates(queries, [["b1", "a2", "other 3"], ["no a"]], passages, (1, 3, 4), seed=1)
    texts = [[passages[j] if j >= 0 else "" for j in row] for row in found.columns]
    assert texts[0][:4] == ["a1", "no a", "b1", "other 3"]  # a2 is right for it
    assert texts[1][:4] == ["b1", "a1", "no a", ""]
    for row, near in zip(texts, ({"a1", "a2", "A2.", "no a", "b1", "other 3"}, {"b1", "a1", "no a"}), strict=True):
        assert len(set(row[4:])) == 4 and not near & set(row[4:])
    again = candidates(queries, [["b1", "a2", "other 3"], ["no a"]], passages, (1, 3, 4), seed=1)
    np.testing.assert_array_equal(found.columns, again.columns)
    assert found.pairs()[0].count("b") == int((found.columns[1] >= 0).sum())
    assert list(in_turn(["x", "y", "z"], ["y", "w"])) == ["x", "y", "w", "z"]
    with pytest.raises(UserError, match="3 hard and 4 easy negatives a query are asked of a collection of 4 passages"):
        candidates(queries, [[], []], passages[:4], (1, 3, 4), seed=1)


def test_the_same_question_in_another_spelling_shares_its_positives() -> None:
    pairs = Pairs(
        ["Who sings?", "who sings", "Who sings?", "who sings", "WHO SINGS", "Who?"],
        ["a robin", "a thrush", "a stone", "a robin", "a thrush", "nobody"],
        [True, True, False, False, False, True],
        [""] * 6,
    )
    queries = by_query(pairs)
    assert queries.texts == ["Who sings?", "who sings", "Who?"]
    assert queries.positives == [["a robin", "a thrush"], ["a thrush", "a robin"], ["nobody"]]
    assert queries.negatives == [["a stone"], [], []]
    assert not without_positive(pairs).texts  # the third spelling is the same question


def test_labels_of_paraphrases_are_read_as_those_of_entailment(tmp_path: Path) -> None:
    rows = [("Duplicate", 1), ("not_duplicate", 0), ("equivalent", 1), ("not_equivalent", 0), ("paraphrase", 1)]
    lines = [json.dumps({"question": "a", "sentence": f"b {i}", "label": label}) for i, (label, _) in enumerate(rows)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n")
    assert read_pairs(str(tmp_path / "p.jsonl"), "config.symmetric").positive == [bool(right) for _, right in rows]


def test_a_row_with_more_cells_than_columns_is_skipped_not_misread(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("label,sentence1,sentence2\n1,a, of two words,b\n0,c,d\n")
    pairs = read_pairs(str(tmp_path / "p.csv"), "config.symmetric")
    assert (pairs.queries, pairs.passages) == (["c"], ["d"])
    assert pairs.skipped == {"row with more cells than columns": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sentence1": "a", "label": 1}, "sentence2"),
        ({"sentence1": "a", "sentence2": "b", "label": "perhaps"}, "the label 'perhaps' is none of"),
        ({"sentence1": "a", "sentence2": "", "label": 1}, "no usable row"),
        ({"sentence1": "a", "sentence2": "b", "label": -1}, "no usable row"),
        ({"sentence1": "a", "sentence2": "b", "label": float("nan")}, "no usable row"),
        ({"sentence1": 3, "sentence2": "b", "label": 1}, "holds int where a text belongs"),
    ],
)
def test_broken_pairs_are_named(row: dict, message: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=message):
        read_pairs(str(tmp_path / "pairs.jsonl"), "config.symmetric")


def test_pairs_with_an_evaluation_text_a_test_query_or_turned_round_leave_the_training_rows() -> None:
    pairs = Pairs(["a", "B .", "c", "d", "E"], ["x", "y", "Z", "w", "b!"], [True] * 5, [""] * 5)
    test = Pairs(["b", "b"], ["e", "w"], [True] * 2, [""] * 2)
    kept, removed = without(pairs, {"z"}, test)
    assert kept.queries == ["a", "d"] and removed == 3  # a passage of the test may stay with another query


def test_a_datasets_classes_count_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    features = datasets.Features(
        {
            "question": datasets.Value("string"),
            "sentence": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["entailment", "not_entailment"]),
        }
    )
    rows = {"question": ["a", "b", "c"], "sentence": ["x", "y", "z"], "label": [0, 1, -1]}
    table = datasets.Dataset.from_dict(rows, features)
    monkeypatch.setattr("jdistill.data.text.records.dataset_splits", lambda source, key: {"train": table})
    found = read_pairs("owner/glue:qnli", "config.asymmetric")
    assert found.positive == [True, False] and found.skipped["without a label"] == 1


def test_splits_and_held_out_queries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_pairs(tmp_path / "split.jsonl", 20, split=True)
    pairs = read_pairs(str(tmp_path / "split.jsonl"), "config.symmetric")
    train, test = train_and_test(pairs, "dev", "test", 0, "config.symmetric")
    assert len(train) == 30 and len(test) == 10 and not set(train.queries) & set(test.queries)
    assert "not read" not in caplog.text
    with_train = replace(pairs, splits=["train"] * 3 + pairs.splits[3:])
    train_and_test(with_train, "dev", "test", 0, "config.symmetric")
    assert "--config.symmetric: 3 rows of the split 'train' are not read; training reads 'dev'" in caplog.text
    with pytest.raises(UserError, match="config.symmetric: there is no split 'train'; there are dev, test"):
        train_and_test(pairs, "train", "test", 0, "config.symmetric")
    write_pairs(tmp_path / "whole.jsonl", 20, split=False)
    whole = read_pairs(str(tmp_path / "whole.jsonl"), "config.asymmetric")
    train, test = train_and_test(whole, "dev", "test", 5, "config.asymmetric")
    assert len(set(test.queries)) == 5 and len(set(train.queries)) == 15
    with pytest.raises(UserError, match="train and test are the same split 'dev'"):
        train_and_test(pairs, "dev", "dev", 0, "config.symmetric")
    with pytest.raises(UserError, match="holding out 20 of 20 queries leaves none to train on"):
        train_and_test(whole, "dev", "test", 20, "config.asymmetric")


def test_labels_beside_an_empty_cell_are_read_as_pandas_writes_them(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sentence1,sentence2,label\na,b,1.0\nc,d,\ne,f,0.0\n")
    read = read_pairs(str(tmp_path / "p.csv"), "symmetric")
    assert read.positive == [True, False] and read.skipped["without a label"] == 1


def test_a_gap_among_splits_is_no_split(tmp_path: Path) -> None:
    lines = [
        f'{{"sentence1": "a{i}", "sentence2": "b", "label": 1, "split": {split}}}\n'
        for i, split in enumerate(["NaN", '"dev"', "null"])
    ]
    (tmp_path / "p.jsonl").write_text("".join(lines))
    assert read_pairs(str(tmp_path / "p.jsonl"), "symmetric").splits == ["", "dev", ""]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("sentence1,sentence2,sentence2,label\na,b,c,1\n")
    with pytest.raises(UserError, match="p.csv line 1: 2 columns are called 'sentence2'"):
        read_pairs(str(tmp_path / "p.csv"), "symmetric")
    (tmp_path / "p.csv").write_text("sentence1,sentence2,label,,\na,b,1,,\n")  # a spreadsheet's empty columns
    assert len(read_pairs(str(tmp_path / "p.csv"), "symmetric")) == 1
