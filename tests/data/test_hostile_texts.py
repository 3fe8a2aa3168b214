"""Text files that a stranger left: no pipe is waited for, nothing that cannot be read is passed over, every fault names its file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import jdistill
from jdistill.core.errors import UserError
from jdistill.data.sets.beir import beir_queries, read_collection, write_collection
from jdistill.data.sets.pairs import read_pairs
from jdistill.data.sets.sts import read_scored_pairs
from jdistill.data.sets.tasks import read_task
from jdistill.data.sets.triplets import read_triplets
from jdistill.data.text.glove import read_glove
from jdistill.data.text.sources import read_texts
from jdistill.data.text.vectors import read_vectors
from jdistill.evals.entity import read_entities

READERS: dict[str, Callable[[Path], object]] = {
    "a.txt": lambda path: read_texts(str(path)),
    "a.txt.gz": lambda path: read_texts(str(path)),
    "a.csv": lambda path: read_texts(str(path), "text"),
    "a.jsonl": lambda path: read_texts(str(path), "text"),
    "a.parquet": lambda path: read_texts(str(path), "text"),
    "t.jsonl": lambda path: read_triplets(str(path)),
    "t.csv": lambda path: read_triplets(str(path)),
    "t.parquet": lambda path: read_triplets(str(path)),
    "p.tsv": lambda path: read_pairs(str(path), "symmetric"),
    "s.csv": read_scored_pairs,
    "s.jsonl": read_scored_pairs,
    "v.npz": read_vectors,
    "v.parquet": read_vectors,
    "g.txt": lambda path: read_glove(path, 3),
    "e.csv": read_entities,
    "m.gguf": lambda path: jdistill.load(str(path)),
}


@pytest.mark.parametrize("name", READERS)
def test_only_regular_files_are_opened(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(UserError, match=f"{name} is a pipe"):
        READERS[name](path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(UserError, match=f"{name} is a pipe, a device"):
        READERS[name](path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=name):
        READERS[name](path)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.write_text("text\na\n")
    known = Path.stat

    def denied(self: Path, *args: object, **kwargs: object) -> os.stat_result:
        if self.name == name and kwargs.get("follow_symlinks", True):
            raise PermissionError(13, "Permission denied", str(self))
        return known(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(UserError, match=name):
        READERS[name](path)


def test_a_folder_that_may_not_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.txt").write_text("A text.\n")
    known = os.scandir

    def denied(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return known(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(UserError, match="closed cannot be read .*left out"):
        read_texts(str(tmp_path))


DEEP, DIGITS, HALF = "[" * 100_000 + "]" * 100_000, "9" * 5000, '"\\ud800"'


@pytest.mark.parametrize("cell", [DEEP, DIGITS, HALF], ids=["deep", "digits", "surrogate"])
def test_json_that_no_text_can_be(tmp_path: Path, cell: str) -> None:
    row = {"text": "T", "anchor": "A", "positive": "T", "sentence1": "T", "sentence2": "T", "label": "1", "score": 1}
    row |= {"_id": "1", "sentence": "S"}
    path = tmp_path / "rows.jsonl"

    def write(key: str) -> None:
        path.write_text(json.dumps(row | {key: "HERE"}).replace('"HERE"', cell) + "\n")

    for key, read in (
        ("text", lambda: read_texts(str(path), "text")),
        ("anchor", lambda: read_triplets(str(path))),
        ("sentence1", lambda: read_pairs(str(path), "symmetric")),
        ("sentence1", lambda: read_scored_pairs(path)),
    ):
        write(key)
        with pytest.raises(UserError, match=r"rows\.jsonl"):
            read()
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("1\t1\t1\n")
    write("text")
    (tmp_path / "corpus.jsonl").write_bytes(path.read_bytes())
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "1", "text": "q"}))
    with pytest.raises(UserError, match=r"corpus\.jsonl, line 1"):
        read_collection(tmp_path)
    write("sentence1")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_bytes(path.read_bytes())
    with pytest.raises(UserError, match=r"(train|dev)\.jsonl, line 1"):
        read_task("mine", str(tmp_path))


def test_a_label_of_many_digits(tmp_path: Path) -> None:
    row = {"sentence1": "T", "sentence2": "S", "label": 10**400}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError, match=r"rows\.jsonl line 1: the label"):
        read_pairs(str(tmp_path / "rows.jsonl"), "symmetric")


def test_an_array_that_says_more_than_it_holds_costs_no_memory(tmp_path: Path) -> None:
    import io
    import zipfile

    beginning = io.BytesIO()
    np.lib.format.write_array_header_2_0(beginning, {"descr": "<f4", "fortran_order": False, "shape": (1 << 36, 64)})
    words = io.BytesIO()
    np.save(words, np.array(["a", "b"]))
    with zipfile.ZipFile(tmp_path / "v.npz", "w") as archive:
        archive.writestr("texts.npy", words.getvalue())
        archive.writestr("embeddings.npy", beginning.getvalue() + bytes(512))
    with pytest.raises(UserError, match="more than it holds"):
        read_vectors(tmp_path / "v.npz")


def test_a_carriage_return_within_a_cell(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"id\ttext\r\n1\tone\r\n2\ta stray\rreturn\n")
    assert read_texts(str(tmp_path / "a.tsv"), "text").texts == ["one", "a stray return"]
    (tmp_path / "a.csv").write_bytes(b'id,text\n1,"quoted\rreturn"\n2,a stray\rreturn\n')
    with pytest.raises(UserError, match="line 3: not valid CSV: a carriage return stands in a cell without quotes"):
        read_texts(str(tmp_path / "a.csv"), "text")


@pytest.mark.parametrize(
    ("judgements", "message"),
    [("1 0 1 1\n", r"test\.tsv, line 1: query-id, corpus-id and a whole"), ("7\t1\t1\n", "no query of .* is judged")],
)
def test_judgements_that_fit_no_query_are_known_before_training(tmp_path: Path, judgements: str, message: str) -> None:
    write_collection(tmp_path, {"1": "a document"}, {"1": "a query"}, {"1": {"1": 1}})
    assert list(beir_queries(tmp_path)) == ["a query"]
    (tmp_path / "qrels" / "test.tsv").write_text(judgements)
    with pytest.raises(UserError, match=message):
        list(beir_queries(tmp_path))
