"""Readers: every kind of file gives the same texts; a long line costs little; damage is named by file and line."""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
import time
import tracemalloc
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings

from jdistill.core.errors import UserError
from jdistill.data.text.readers import file_rows
from jdistill.data.text.records import records_of
from jdistill.data.text.sources import read_columns, read_texts
from jdistill.data.text.text_stream import TextStream
from jdistill.data.text.usable import MAX_CHARS

TEXTS = ["The cat sat.", "Ein Käse, bitte.", "猫が座った。"]


def write(path: Path, content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def write_kind(folder: Path, name: str) -> str:
    """TEXTS in the format that the name says, beside a column of numbers where the format has columns."""
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"text": TEXTS, "score": [1.0, 2.0, 3.0]}), path)
        return str(path)
    if ".jsonl" in name:
        return write(path, "".join(json.dumps({"score": 1.5, "text": text}) + "\n" for text in TEXTS))
    if ".csv" in name:
        return write(path, "score,text\r\n" + "".join(f'1.5,"{text}"\r\n' for text in TEXTS))
    if ".tsv" in name:
        return write(path, "score\ttext\n" + "".join(f"1.5\t{text}\n" for text in TEXTS))
    return write(path, "\ufeff" + "\r\n".join(TEXTS))


ALL_KINDS = ["a.txt", "a.txt.gz", "a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.jsonl.gz", "a.parquet"]


@pytest.mark.parametrize("name", ALL_KINDS)
def test_every_kind_gives_the_same_texts(tmp_path: Path, name: str) -> None:
    found = read_texts(write_kind(tmp_path, name))
    assert found.texts == TEXTS
    assert found.skipped == {}


@pytest.mark.parametrize("name", ["long.txt", "long.txt.gz", "long.jsonl", "long.csv"])
def test_a_line_of_10_mb_is_skipped_quickly(tmp_path: Path, name: str) -> None:
    long = "x" * 10_000_000
    rows = ["before", long, "y" * (MAX_CHARS + 1), "z" * MAX_CHARS, "after"]
    if ".jsonl" in name:
        rows = [json.dumps({"text": row}) for row in rows]
    source = write(tmp_path / name, "\n".join((["text"] if ".csv" in name else []) + rows))
    start = time.process_time()  # what another load takes is not counted
    found = read_texts(source)
    assert [len(text) for text in found.texts] == [6, MAX_CHARS, 5]
    assert found.skipped == {"too long": 2}
    assert time.process_time() - start < 5


def test_an_endless_line_is_never_held_whole(tmp_path: Path) -> None:
    path = tmp_path / "endless.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(32):
            file.write(b"x" * (1 << 22))
        file.write(b"\nafter\n")
    tracemalloc.start()
    try:
        rows = list(file_rows(path, "", "config.text"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == [(1, None), (2, b"after")]
    assert peak < 16 << 20  # of the line's 128 MB


@pytest.mark.parametrize("name", ["two.csv", "two.jsonl", "two.parquet"])
def test_a_column_must_be_named_when_two_hold_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    columns: dict[str, list] = {"question": ["Why?"], "answer": ["Because."], "score": [1]}
    if name.endswith(".csv"):
        write(path, "question,answer,score\nWhy?,Because.,1\n")
    elif name.endswith(".jsonl"):
        write(path, json.dumps({key: value[0] for key, value in columns.items()}))
    else:
        pq.write_table(pa.table(columns), path)
    assert read_texts(str(path), "answer").texts == ["Because."]
    with pytest.raises(UserError, match="2 columns hold text; set --config.text_column to one of: question, answer"):
        read_texts(str(path))
    with pytest.raises(UserError, match=rf"{name}.*no column 'reply'.*question, answer"):
        read_texts(str(path), "reply")


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("null.jsonl", '{"title": "T1", "body": null}\n{"title": "T2", "body": "B2"}\n', "title, body"),
        ("year.csv", "sentence,label\n2012,pos\nreal,neg\n", "sentence, label"),
        ("late.tsv", "a\tb\n" + 50 * "1\tx\n" + "z\tx\n", "a, b"),
        ("empty.csv", "a,b\n,x\n,y\n", "a, b"),
        ("index.csv", ",title,text\n0,a,b\n1,c,d\n", "title, text"),
    ],
)
def test_a_column_that_its_first_row_hides_must_be_named(tmp_path: Path, name: str, content: str, columns: str) -> None:
    with pytest.raises(UserError, match=f"2 columns hold text; .* to one of: {columns}$"):
        read_texts(write(tmp_path / name, content))


def test_the_one_column_of_text_needs_no_name_whatever_its_first_row_holds(tmp_path: Path) -> None:
    for name, content in (
        ("a.csv", "score,text\n,2012\n1.5,real\n"),
        ("a.jsonl", '{"score": 1, "text": null}\n{"score": 1, "text": "2012"}\n{"score": 1, "text": "real"}\n'),
        ("index.csv", ",text\nfirst,2012\nsecond,real\n"),  # as DataFrame.to_csv writes it
    ):
        assert read_texts(write(tmp_path / name, content)).texts == ["2012", "real"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_row_with_more_cells_than_columns_is_skipped_not_cut(tmp_path: Path, name: str) -> None:
    rows = ["text,id", "Hello, world, this is cut,1", "whole,2"]
    source = write(tmp_path / name, "\n".join(rows).replace(",", "," if name == "a.csv" else "\t"))
    found = read_texts(source, "text")
    assert found.texts == ["whole"] and found.skipped == {"with more cells than columns": 1}
    assert list(read_columns(source, "text", "id", "config.augment")) == [("whole", "2")]
    assert [(of.text, of.id) for of in TextStream(source, "text", "id")] == [("whole", "2")]


def test_a_column_of_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1: 'score' holds float, not text"):
        read_texts(write_kind(tmp_path, "a.jsonl"), "score")
    with pytest.raises(UserError, match="'score' holds double, not text"):
        read_texts(write_kind(tmp_path, "a.parquet"), "score")


@pytest.mark.parametrize("row", ["{broken", "[" * 100_000, '["a list"]'])
def test_jsonl_that_is_not_json_objects_names_file_and_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(UserError, match=r"rows\.jsonl line 2: .*(not valid JSON|must be an object)"):
        read_texts(write(tmp_path / "rows.jsonl", '{"text": "one"}\n' + row + "\n"))


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("config.text", "set --config.text_column to one of: a, b"),
        ("text", "set --text_column to one of: a, b"),
        ("corpus", "set --column to one of: a, b"),
        ("calibrate", "--calibrate takes a file with one column of text, and here are: a, b"),
    ],
)
def test_the_remedy_names_a_flag_that_the_command_has(tmp_path: Path, key: str, remedy: str) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": ["y"], "c": [1]}), tmp_path / "ab.parquet")
    for source in (write(tmp_path / "ab.csv", "a,b\nx,y\n"), str(tmp_path / "ab.parquet")):
        with pytest.raises(UserError, match=f"2 columns hold text; {remedy}$"):
            read_texts(source, key=key)
    with pytest.raises(UserError, match=f"column 'c' holds int64, not text; {remedy}$"):
        read_texts(str(tmp_path / "ab.parquet"), "c", key)


def test_a_jsonl_row_without_the_column_names_its_line(tmp_path: Path) -> None:
    told = "line 2: there is no column 'text', which the rows before have; write null .*: body$"
    with pytest.raises(UserError, match=told):
        read_texts(write(tmp_path / "rows.jsonl", '{"text": "one"}\n{"body": "two"}\n'))


def test_an_open_quote_in_csv_is_an_error_not_one_huge_cell(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"open\.csv line 4.*quote"):
        read_texts(write(tmp_path / "open.csv", 'text\nfine\n"never closed\nmore\n'))


@pytest.mark.parametrize("separator", ["\t", ";"])
def test_csv_without_commas_is_not_read_as_one_column(tmp_path: Path, separator: str) -> None:
    with pytest.raises(UserError, match=r"tabs\.csv line 1: no comma"):
        read_texts(write(tmp_path / "tabs.csv", f"score{separator}text\n1{separator}one\n"))


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.parquet"])
def test_a_file_cut_short_is_named(tmp_path: Path, name: str) -> None:
    path = Path(write_kind(tmp_path, name))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=f"{name} cannot be read.*damaged or cut short"):
        read_texts(str(path))


def test_not_gzip_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain.txt.gz").write_text("not compressed")
    with pytest.raises(UserError, match="plain.txt.gz cannot be read.*[Nn]ot a gzip"):
        read_texts(str(tmp_path / "plain.txt.gz"))


# Quotes about each cell, or about those alone that need them; a bare \r is among those where lines end in it.
CSV_DIALECTS = [{"lineterminator": "\n", "quoting": csv.QUOTE_ALL}, {"lineterminator": "\r\n"}]


def write_csv(path: Path, texts: list[str], dialect: dict) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, **dialect).writerows([["text", "number"], *((text, i) for i, text in enumerate(texts))])


def read_both_ways(path: Path) -> tuple[list[str], list[str]]:
    """The texts as cells of a column, and out of whole records."""
    cells = [cell for _, cell in file_rows(path, "text", "config.text")]
    texts = [cell.decode() if isinstance(cell, bytes) else cell or "" for cell in cells]
    return texts, [record["text"] for _, record in records_of(str(path), "config.text")]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.text(), min_size=1, max_size=6), st.sampled_from(CSV_DIALECTS))
@example(['"', ",", "a\nb", "a\r\nb", "\r", "", "\x00", "\ufeff", "\u2028", "1.5"], CSV_DIALECTS[0])
def test_any_text_comes_back_from_csv(texts: list[str], dialect: dict) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        write_csv(path, texts, dialect)
        # Lines end in either way, so within a quoted cell too \r\n is read as \n.
        expected = [text.replace("\r\n", "\n") for text in texts]
        assert read_both_ways(path) == (expected, expected)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.text(st.characters(exclude_characters="\t\n\r", codec="utf-8")), min_size=1, max_size=6))
@example(['"', 'a "b" c', "", ","])
def test_any_line_comes_back_from_tsv(texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.tsv"
        lines = [f"{text}\t{i}\n" for i, text in enumerate(texts)]
        path.write_text("text\tnumber\n" + "".join(lines), encoding="utf-8", newline="")
        assert read_both_ways(path) == (texts, texts)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.text(), min_size=1, max_size=6), st.booleans(), st.sampled_from(["\n", "\r\n"]))
@example(["\r\n", "\u2028", "\x00", '"', "", "\\"], False, "\n")
def test_any_text_comes_back_from_jsonl(texts: list[str], ascii_only: bool, line_end: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        lines = [json.dumps({"text": text, "number": i}, ensure_ascii=ascii_only) for i, text in enumerate(texts)]
        path.write_text(line_end.join(lines), encoding="utf-8", newline="")
        assert read_both_ways(path) == (texts, texts)
