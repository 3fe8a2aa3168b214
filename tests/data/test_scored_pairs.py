"""Scored pairs of a user's file: each format, and what is refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jdistill.core.errors import UserError
from jdistill.data.sets.sts import pair_files, read_scored_pairs

FORMATS = {
    "a.csv": 'id,score,sentence1,sentence2\n7,1.5,"one, ""two""",three\n8,2,four,five\n\n',
    "b.tsv": 'sentence1\tsentence2\tscore\none, "two"\tthree\t1.5\nfour\tfive\t2\n',
    "c.jsonl": "".join(
        json.dumps({"sentence1": a, "sentence2": b, "score": s}) + "\n"
        for a, b, s in (('one, "two"', "three", 1.5), ("four", "five", 2))
    ),
    "d.csv": 'g\tf\ty\t1\t1.5\tone, "two"\tthree\ng\tf\ty\t2\t2\tfour\tfive\n',
    "SICK_trial.txt": "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n"
    '1\tone, "two"\tthree\t1.5\tNEUTRAL\r\n2\tfour\tfive\t2\tNEUTRAL\r\n',
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_scored_pairs(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FORMATS[name].encode())
    left, right, gold = read_scored_pairs(tmp_path / name)
    assert (left, right) == (['one, "two"', "four"], ["three", "five"])
    assert gold.dtype == np.float64 and gold.tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", b"sentence1,sentence2,score\na,b,1\na,b,nan\n", "p.csv, line 3: the score is 'nan'"),
        ("p.csv", b"sentence1,sentence2,score\na,,1\n", "p.csv, line 2: sentence 2 is empty"),
        ("p.csv", b"sentence1,sentence2,score\na,b\n", "p.csv, line 2: 2 columns, but column 3"),
        (
            "p.csv",
            b"sentence1,text,score\na,b,1\n",
            "line 1: columns sentence1, sentence2, .* found is sentence1, text",
        ),
        ("p.csv", b'sentence1,sentence2,score\n"a,b,1\n', "p.csv, line 2: not a well-formed row"),
        (
            "p.csv",
            b"sentence1,sentence2,score\na,on 5 May, 1990,4.5\n",
            "p.csv, line 2: 4 columns, but the header has 3",
        ),
        ("p.csv", b"", "p.csv, line 1: columns sentence1, sentence2, score are needed; found is nothing"),
        ("p.csv", b"sentence1,sentence2,score\n", "p.csv holds no pair"),
        ("p.tsv", b"sentence1\tsentence2\tscore\na\tb\t1\na\t\xff\t1\n", "p.tsv, line 3: not UTF-8"),
        ("p.csv", b"g\tf\ty\t1\t1.5\ta\tb\ng\tf\ty\t1\tNaN\ta\tb\n", "p.csv, line 2: the score is 'NaN'"),
        (
            "p.jsonl",
            b'{"sentence1": "a", "sentence2": "b"}\n',
            "p.jsonl, line 1: sentence1, sentence2, score are needed",
        ),
        ("p.jsonl", b'{"sentence1": "a", "sentence2": 3, "score": 1}\n', "line 1: sentence 2 is empty or no string: 3"),
        ("p.jsonl", b'{"sentence1": "a", "sentence2": "b", "score": NaN}\n', "p.jsonl, line 1: the score is nan"),
        ("p.jsonl", b'\n{"sentence1": \n', "p.jsonl, line 2: not valid JSON"),
        ("p.xlsx", b"", "p.xlsx: scored pairs are read from"),
    ],
)
def test_bad_pairs_are_named_by_file_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_scored_pairs(tmp_path / name)


def test_a_folder_names_its_files_of_pairs(tmp_path: Path) -> None:
    for name in ("b.tsv", "a.csv", ".a.csv", "notes.md"):
        (tmp_path / name).write_text("")
    assert pair_files(tmp_path) == [tmp_path / "a.csv", tmp_path / "b.tsv"]
    assert pair_files(tmp_path / "a.csv") == [tmp_path / "a.csv"]
    (tmp_path / "c.csv").mkdir()
    assert pair_files(tmp_path) == [tmp_path / "a.csv", tmp_path / "b.tsv"]
    for name in ("none.csv", "none"):
        with pytest.raises(UserError, match=f"{name}: no such file or folder of scored pairs"):
            pair_files(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no file of scored pairs, which end in .csv, .tsv, .txt, .jsonl"):
        pair_files(tmp_path / "empty")
