"""Triplets: what is read, what is skipped and counted, what is refused, and what a batch of them holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jdistill.core.errors import UserError
from jdistill.data.batching.batches import TokenTable
from jdistill.data.sets.triplets import (
    TripletTokens,
    passage_columns,
    read_triplets,
    remove_evaluation_rows,
    same_texts,
)


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_every_format_gives_the_same_rows(tmp_path: Path) -> None:
    rows = [{"anchor": "a", "positive": "b", "negative": "c"}, {"anchor": "d e", "positive": "f", "negative": "g"}]
    write(tmp_path / "t.jsonl", rows)
    (tmp_path / "t.csv").write_text("anchor,positive,negative\na,b,c\nd e,f,g\n")
    (tmp_path / "t.tsv").write_text("query\tpositive\tnegative\na\tb\tc\nd e\tf\tg\n")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    for name in ("t.jsonl", "t.csv", "t.tsv", "t.parquet"):
        found = read_triplets(str(tmp_path / name))
        assert (found.anchors, found.positives, found.negatives) == (["a", "d e"], ["b", "f"], [["c"], ["g"]]), name
    assert len(read_triplets(str(tmp_path))) == 8  # a folder: all of its files


def test_lists_of_negatives_pairs_alone_and_what_is_skipped(tmp_path: Path) -> None:
    source = write(
        tmp_path / "t.jsonl",
        [
            {"query": "q", "positive": "p", "negatives": ["n1", "n2", " ", "n1", "p", None]},
            {"query": "r", "positive": "p"},
            {"query": "", "positive": "p", "negatives": ["n"]},
            {"query": "s", "positive": "a\0b", "negatives": []},
            {"query": "t", "positive": "u", "negative": ""},
            {"query": "v", "positive": "\ud800", "negative": "n"},
        ],
    )
    found = read_triplets(source)
    assert found.anchors == ["q", "r", "t"] and found.negatives == [["n1", "n2"], [], []]
    assert found.skipped == {
        "negative blank": 3,
        "negative repeated in its row": 1,
        "negative that is the anchor or positive": 1,
        "query blank": 1,
        "positive with NUL": 1,
        "positive with a lone surrogate": 1,
    }


def test_a_table_of_text_has_its_negatives_as_a_json_list(tmp_path: Path) -> None:
    rows = ['q,p,"[""n 1"", null, ""n, 2""]"', 'r,s,"  []"', "t,u,plain [1]", "v,w,"]
    (tmp_path / "t.csv").write_text("\n".join(["query,positive,negatives", *rows]))
    assert read_triplets(str(tmp_path / "t.csv")).negatives == [["n 1", "n, 2"], [], ["plain [1]"], []]
    (tmp_path / "t.tsv").write_text('anchor\tpositive\tnegatives\tnegative\na\tb\t["c", "d"]\t["e"]\n')
    assert read_triplets(str(tmp_path / "t.tsv")).negatives == [['["e"]', "c", "d"]]
    for cell in ("['n']", "[1] n", '"[""n"", 3]"', '"[""n"""', "[" * 100_000):
        (tmp_path / "t.csv").write_text(f"query,positive,negatives\nq,p,n\nr,s,{cell}\n")
        with pytest.raises(UserError, match=r"t.csv line 3: negatives begins with \[ and is no JSON list .*pandas"):
            read_triplets(str(tmp_path / "t.csv"))


def test_a_row_with_more_cells_than_columns_is_skipped_not_misread(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("anchor,positive,negative\na, of two words,b,c\nd,e,f\n")
    found = read_triplets(str(tmp_path / "t.csv"))
    assert (found.anchors, found.positives, found.negatives) == (["d"], ["e"], [["f"]])
    assert found.skipped == {"row with more cells than columns": 1}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "t.jsonl",
            '{"anchor": "a"}\n',
            r"t.jsonl line 1: the columns anchor \(or query\) and positive are needed; there are \['anchor'\]",
        ),
        ("t.jsonl", '{"text": "a", "positive": "b"}\n', "line 1: the columns anchor"),
        ("t.csv", "anchor,negative\na,b\n", "t.csv line 2: the columns anchor"),
        ("t.jsonl", '{"anchor": "a", "positive": "b"}\n{"anchor": "a", \n', "t.jsonl line 2: not valid JSON"),
        ("t.jsonl", '["a", "b"]\n', "line 1: a row must be an object with anchor and positive, not list"),
        ("t.jsonl", '{"anchor": "a", "positive": 3}\n', "line 1: holds int where a text belongs"),
        ("t.csv", 'anchor,positive\n"a,b\nc,d\n', "t.csv line 3: not valid CSV .*a quote may stand open"),
        ("t.jsonl", "", "holds no usable row; skipped: nothing, it is empty"),
        ("t.jsonl", '{"anchor": " ", "positive": "b"}\n', "holds no usable row; skipped: {'anchor blank': 1}"),
        ("t.txt", "a\tb\n", "is not one of .csv .tsv .jsonl .parquet"),
        ("t.jsonl", b'{"anchor": "a", "positive": "\xff"}\n', "t.jsonl line 1: not valid UTF-8"),
        ("t.parquet", "not parquet", "t.parquet cannot be read"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        read_triplets(str(tmp_path / name))


def test_rows_with_an_evaluation_sentence_are_removed_and_counted(tmp_path: Path) -> None:
    rows = [
        {"anchor": "A dog runs .", "positive": "b", "negative": "c"},
        {"anchor": "x", "positive": "y", "negative": "a DOG runs"},
        {"anchor": "x", "positive": "y", "negative": "z"},
    ]
    found = remove_evaluation_rows(read_triplets(write(tmp_path / "t.jsonl", rows)), ["a dog runs"])
    assert found.anchors == ["x"] and found.negatives == [["z"]] and found.skipped == {"evaluation text": 2}


def test_a_batch_holds_each_text_in_its_place_and_masks_what_is_missing(tmp_path: Path) -> None:
    rows = [
        {"anchor": "1", "positive": "22", "negatives": ["333", "4444"]},
        {"anchor": "55555", "positive": "333", "negatives": ["1"]},
    ]
    triplets = read_triplets(write(tmp_path / "t.jsonl", rows))
    passages, columns = passage_columns(triplets, 2)
    assert passages == ["22", "333", "4444", "1"] and columns.tolist() == [[0, 1, 2], [1, 3, -1]]
    assert passage_columns(triplets, 1)[1].tolist() == [[0, 1], [1, 2]]

    def table(texts: list[str]) -> TokenTable:
        return TokenTable(np.array([int(c) for text in texts for c in text]), np.cumsum([0, *map(len, texts)]))

    tokens = TripletTokens(table(triplets.anchors), table(passages), columns, same_texts(triplets.anchors, passages))
    assert tokens.lengths.tolist() == [4, 5]
    batch = tokens.padded(np.array([1, 0]), 5, 9)
    assert batch["real"].tolist() == [[True, True, True, False], [True] * 4]
    assert batch["texts"].tolist() == [[5, 1, 3, -1], [3, 0, 1, 2]]  # the other's anchor is a negative here
    assert same_texts(["a", "b", "a", "c"], ["x", "c"]).tolist() == [2, 3, 2, 1]
    texts = [
        ["".join(map(str, ids[mask])) for ids, mask in zip(*row, strict=True)]
        for row in zip(batch["ids"], batch["mask"], strict=True)
    ]
    assert texts == [["55555", "333", "1", ""], ["1", "22", "333", "4444"]]
    assert (batch["ids"][~batch["mask"]] == 9).all() and batch["ids"].dtype == np.int32
