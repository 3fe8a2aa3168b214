"""The column scores of triplets: read with its passages, kept beside them, refused where it does not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ibkd_setting import triplet_tokens

from jdistill.core.errors import UserError
from jdistill.data.sets.triplets import read_triplets, remove_evaluation_rows, score_columns


def write(path: Path, *rows: str | dict) -> str:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_every_format_gives_the_same_scores(tmp_path: Path) -> None:
    rows = [
        {"query": "q", "positive": "p", "negative_1": "m", "negative_2": "n", "scores": [3, 1.5, -2]},
        {"query": "r", "positive": "s", "negative_1": "t", "negative_2": "u", "scores": [0.5, 0, 1e-3]},
    ]
    write(tmp_path / "t.jsonl", *rows)
    listed = [
        {"query": row["query"], "positive": row["positive"], "negatives": [row["negative_1"], row["negative_2"]]}
        | {"scores": row["scores"]}
        for row in rows
    ]
    write(tmp_path / "lists.jsonl", *listed)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    write(
        tmp_path / "t.csv",
        "query,positive,negative_1,negative_2,scores",
        'q,p,m,n,"[3, 1.5, -2]"',
        'r,s,t,u,"[0.5, 0, 1e-3]"',
    )
    for name in ("t.jsonl", "lists.jsonl", "t.parquet", "t.csv"):
        triplets = read_triplets(str(tmp_path / name))
        assert triplets.negatives == [["m", "n"], ["t", "u"]], name
        assert triplets.scores == [[3.0, 1.5, -2.0], [0.5, 0.0, 1e-3]], name
    write(tmp_path / "t.jsonl", *({k: v for k, v in row.items() if k != "scores"} for row in rows))
    assert read_triplets(str(tmp_path / "t.jsonl")).scores == []


def test_numbered_negatives_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    row = {f"negative_{i}": f"n{i}" for i in (10, 2, 1)} | {"negative": "n", "anchor": "a", "positive": "p"}
    assert read_triplets(write(tmp_path / "t.jsonl", row)).negatives == [["n", "n1", "n2", "n10"]]


def test_a_negative_that_is_left_out_takes_its_score_with_it(tmp_path: Path) -> None:
    rows = [
        {
            "query": "q",
            "positive": "p",
            "negatives": ["n1", "", "p", "n2", "n1", None],
            "scores": [9, 1, 2, 3, 4, 5, 6],
        },
        {"query": "", "positive": "p", "negatives": ["n"], "scores": [1, 2]},
        {"query": "a dog", "positive": "p", "negatives": [], "scores": [7]},
        {"query": "r", "positive": "s", "negatives": ["n3"], "scores": [8, 0]},
    ]
    triplets = read_triplets(write(tmp_path / "t.jsonl", *rows))
    assert triplets.negatives == [["n1", "n2"], [], ["n3"]]
    assert triplets.scores == [[9.0, 1.0, 4.0], [7.0], [8.0, 0.0]]
    left = remove_evaluation_rows(triplets, ["A dog ."])
    assert left.anchors == ["q", "r"] and left.scores == [[9.0, 1.0, 4.0], [8.0, 0.0]]
    assert score_columns(left, 2).tolist() == [[9.0, 1.0, 4.0], [8.0, 0.0, 0.0]]
    assert score_columns(left, 1).tolist() == [[9.0, 1.0], [8.0, 0.0]]


def test_a_batch_has_the_scores_of_its_rows() -> None:
    tokens = triplet_tokens(8)
    assert "scores" not in tokens.padded(np.arange(2), 20, 0)
    scores = np.arange(24, dtype=np.float32).reshape(8, 3)
    batch = replace(tokens, scores=scores).padded(np.array([4, 1]), 20, 0)
    assert batch["scores"].tolist() == [[12.0, 13.0, 14.0], [3.0, 4.0, 5.0]]


GOOD = '{"query": "q", "positive": "p", "negatives": ["m", "n"], "scores": [1, 2, 3]}'


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ("[1, 2]", "t.jsonl line 2: 2 scores for 3 passages"),
        ("[1, 2, 3, 4]", "line 2: 4 scores for 3 passages; one for the positive and one for each negative"),
        ("[]", "line 2: 0 scores for 3 passages"),
        ("[1, NaN, 3]", "line 2: scores holds nan in place 2; a finite number is needed"),
        ("[1, 2, -Infinity]", "line 2: scores holds -inf in place 3"),
        ("[1e39, 2, 3]", r"line 2: scores holds 1e\+39 in place 1"),
        (f"[{10**60}, 2, 3]", "line 2: scores holds a number of many digits in place 1"),
        ('[1, "2", 3]', r"line 2: scores holds a string \('2'\) in place 2, not a number"),
        ("[1, true, 3]", "line 2: scores holds True in place 2, not a number"),
        ("[1, null, 3]", "line 2: scores holds null .* in place 2"),
        ("[1, [2], 3]", "line 2: scores holds a list"),
        ("4.5", "line 2: scores is 4.5, not a list of numbers"),
        ('{"p": 1}', "line 2: scores is an object"),
        ('"high"', "line 2: the column scores: not valid JSON"),
        ("null", "line 2 has no scores, and .*line 1 has: all rows need them, or none"),
        ('""', "line 2 has no scores, and .*line 1 has"),
    ],
)
def test_scores_that_do_not_fit_are_named(tmp_path: Path, scores: str, message: str) -> None:
    bad = f'{{"query": "q", "positive": "p", "negatives": ["m", "n"], "scores": {scores}}}'
    with pytest.raises(UserError, match=message):
        read_triplets(write(tmp_path / "t.jsonl", GOOD, bad))


def test_scores_that_only_later_rows_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1 has no scores, and .*line 2 has"):
        read_triplets(write(tmp_path / "t.jsonl", '{"query": "q", "positive": "p", "negatives": ["m", "n"]}', GOOD))
