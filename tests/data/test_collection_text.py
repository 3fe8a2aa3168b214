"""beir:FOLDER as a text source: the documents of collections as an index has them, titles too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jdistill.core.errors import UserError
from jdistill.data.sets.beir import read_collection, write_collection
from jdistill.data.text.sources import read_texts
from jdistill.data.text.text_stream import TextStream

ROWS = [
    {"_id": "1", "title": "On wings", "text": "A wing\nhas two lines."},
    {"_id": "2", "title": "", "text": "No title."},
    {"text": "Without an id."},
    {"_id": "4", "title": "No text", "text": ""},
    {"_id": "5", "title": "", "text": " "},
    {"_id": "6", "title": "", "text": "No title."},
]


def write_corpus(folder: Path, lines: list[str]) -> Path:
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


def test_documents_are_read_by_title_and_text_and_without_queries_or_judgements(tmp_path: Path) -> None:
    write_corpus(tmp_path / "one", [json.dumps(row) for row in ROWS])
    write_corpus(tmp_path / "two", [json.dumps({"_id": "1", "text": "Of another."})])
    expected = ["On wings A wing\nhas two lines.", "No title.", "Without an id.", "No text"]
    rows = read_texts(f"beir:{tmp_path / 'one'}", "sentence")  # the column is that of tables beside it
    assert rows.texts == expected and rows.skipped == {"empty": 1, "repeated": 1}
    assert read_texts(f"beir:{tmp_path}").texts == [*expected, "Of another."]
    assert [text for text, _ in TextStream(f"beir:{tmp_path}")] == [*expected, "No title.", "Of another."]


def test_they_are_those_that_a_search_reads(tmp_path: Path) -> None:
    write_collection(tmp_path / "c", {"1": "a text", "2": "another"}, {"q": "a question"}, {"q": {"1": 1}})
    assert read_texts(f"beir:{tmp_path / 'c'}").texts == list(read_collection(tmp_path / "c").documents.values())


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("beir:", "--config.text=beir: name the collection's folder, beir:FOLDER"),
        ("beir:{}/nothing", "--config.text="),
        ("beir:~nosuchuser/x", "--config.text="),
        ("beir:no/collection", "--config.text=beir:no/collection: there is no such folder"),
        ("beir:{}/cut/corpus.jsonl", "there is no such folder; it holds corpus.jsonl"),
        ("beir:{}", "none of its folders holds corpus.jsonl"),
        ("beir:{}/cut", "corpus.jsonl, line 2"),
        ("beir:{}/number", "corpus.jsonl, line 1: text is int, not a string"),
        ("beir:{}/other", "corpus.jsonl, line 1: text missing"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, source: str, told: str) -> None:
    if not source.endswith("{}"):
        write_corpus(tmp_path / "cut", ['{"_id": "1", "text": "whole"}', '{"_id": "2", "te'])
        write_corpus(tmp_path / "number", ['{"_id": "1", "text": 7}'])
        write_corpus(tmp_path / "other", ['{"_id": "1", "passage": "a"}'])
    with pytest.raises(UserError) as error:
        read_texts(source.format(tmp_path))
    assert told in str(error.value)
