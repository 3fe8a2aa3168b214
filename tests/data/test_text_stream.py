"""A stream of texts: the same as read_texts gives, in the same order, with ids in step; what cannot be used is counted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jdistill.core.errors import UserError
from jdistill.data.text import text_stream
from jdistill.data.text.sources import read_texts
from jdistill.data.text.text_stream import TextStream
from jdistill.data.text.vector_parts import split_parts

ROWS = [("a1", " one "), ("a2", ""), ("a3", "zwei Käse"), ("a4", "x" * 100_001), ("a5", "one")]


def table(path: Path, numbers: bool = False) -> Path:
    ids = [int(name[1]) if numbers else name for name, _ in ROWS]
    texts = [text for _, text in ROWS]
    match path.suffixes:
        case [".parquet"]:
            pq.write_table(pa.table({"_id": ids, "text": texts}), path)
        case [".jsonl", *_]:
            lines = "\n".join(json.dumps({"_id": i, "text": t}) for i, t in zip(ids, texts, strict=True))
            path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())
        case _:
            tab = "\t" if path.suffix == ".tsv" else ","
            path.write_text("".join(f"{i}{tab}{t}\n" for i, t in [("_id", "text"), *zip(ids, texts, strict=True)]))
    return path


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv"])
def test_texts_and_ids_are_in_step(tmp_path: Path, name: str, numbers: bool, caplog: pytest.LogCaptureFixture) -> None:
    stream = TextStream(str(table(tmp_path / name, numbers)), "text", "_id")
    for _ in range(2):  # it can be gone through again
        first, third, fifth = (number if numbers else f"a{number}" for number in (1, 3, 5))
        assert list(stream) == [("one", str(first)), ("zwei Käse", str(third)), ("one", str(fifth))]
        assert stream.skipped.counts == {"empty": 1, "too long": 1}
    with caplog.at_level("WARNING", logger="jdistill"):
        stream.log_skipped()
    assert "skipped 1 empty (first: " in caplog.text


def test_a_folder_is_streamed_as_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("three\nfour\n\n")
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert [text for text, _ in TextStream(str(tmp_path))] == read_texts(str(tmp_path)).texts


def test_a_dataset_is_streamed_with_its_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """load_dataset itself, on a folder laid out as a dataset repository, so that no hub is needed."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(text_stream, "local_path", lambda *_: None)
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "train.csv").write_text("id,text,other\n1,one,x\n2, two ,y\n3,,z\n")
    assert list(TextStream(str(repository), "text", "id")) == [("one", "1"), ("two", "2")]
    with pytest.raises(UserError, match="no column 'nr'; set --id_column to one of: id, text, other"):
        list(TextStream(str(repository), "text", "nr"))
    with pytest.raises(UserError, match="2 columns hold text; set --text_column to one of: text, other"):
        list(TextStream(str(repository)))


def test_an_unusable_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n  \n")
    with pytest.raises(UserError, match="--text=.*a.txt holds no usable text: skipped 1 empty .*1 blank"):
        list(TextStream(str(tmp_path / "a.txt")))
    with pytest.raises(UserError, match="--id_column=_id: .*a.txt has no columns"):
        list(TextStream(str(tmp_path / "a.txt"), "", "_id"))
    with pytest.raises(UserError, match="--id_column=_id: python-docs has no columns"):
        list(TextStream("python-docs", "", "_id"))
    with pytest.raises(UserError, match="there is no column 'nr'; set --id_column to one of: _id, text"):
        list(TextStream(str(table(tmp_path / "a.parquet")), "text", "nr"))
    with pytest.raises(UserError, match="there is no column 'body'; set --text_column to one of: _id, text"):
        list(TextStream(str(table(tmp_path / "b.csv")), "body"))


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_a_text_without_id_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = [{"id": "1", "text": "one"}, {"id": None, "text": "two"}]
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=f"{name} (row|line) 2: column 'id' holds no id"):
        list(TextStream(str(path), "text", "id"))
    rows[1]["id"] = "  "
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "blank.parquet")
    with pytest.raises(UserError, match="blank.parquet row 2: column 'id' holds no id"):
        list(TextStream(str(tmp_path / "blank.parquet"), "text", "id"))
    if name == "a.jsonl":
        path.write_text('{"id": "1", "text": "one"}\n{"text": "two"}\n')
        with pytest.raises(UserError, match="line 2: column 'id' holds no id; give every text one"):
            list(TextStream(str(path), "text", "id"))
        path.write_text('\n{"id": "1", "text": "one"}\n')
        with pytest.raises(UserError, match="there is no column 'nr'; set --id_column to one of: id, text"):
            list(TextStream(str(path), "text", "nr"))
        path.write_text('{"id": "user\\ud83d", "text": "one"}\n')
        with pytest.raises(UserError, match=r"line 1: column 'id' holds an id with half a character"):
            list(TextStream(str(path), "text", "id"))
    odd = {"id": 1.5, "text": "one"}
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist([odd]), path)
    else:
        path.write_text(json.dumps(odd))
    with pytest.raises(UserError, match="'id' holds (double|float), not"):
        list(TextStream(str(path), "text", "id"))


def test_parts_are_of_bounded_size_and_the_same_however_often_they_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"text {i}\n" for i in range(10)))
    for _ in range(2):
        parts = list(split_parts(TextStream(str(path)), 4))
        assert [(part.number, part.name, len(part.texts)) for part in parts] == [
            (0, "part-00000.parquet", 4), (1, "part-00001.parquet", 4), (2, "part-00002.parquet", 2),
        ]  # fmt: skip
        assert [text for part in parts for text in part.texts] == [f"text {i}" for i in range(10)]
