"""Input that is plausible and unusual: read as its user means it, or refused by name; nothing is lost without a word."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.beir import read_collection
from jdistill.data.sets.pairs import Pairs, train_and_test
from jdistill.data.sets.task_files import read_dataset, read_files
from jdistill.data.text import hub, sources
from jdistill.data.text.kept_texts import keep_source
from jdistill.data.text.schemes import reader_of
from jdistill.data.text.sources import read_texts
from jdistill.data.text.text_pairs import as_pair, keep_pairs
from jdistill.data.text.text_sources import text_sources
from jdistill.data.text.text_stream import TextStream


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(log, "propagate", True)
    return caplog


def test_of_a_folder_of_pairs_no_text_file_is_a_query(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    (pairs / "a.jsonl").write_text('{"query": "who", "positive": "she"}\n')
    (pairs / "README.txt").write_text("Licence: CC-BY.\n")
    kept = keep_source(str(pairs), "query", "config.pairs", tmp_path / "kept", of_tables=True)
    assert list(kept.texts) == ["who"]


@pytest.mark.parametrize("column", [{"text": [3, 4]}, {"text": [["a", "b"], ["c"]]}])
def test_a_column_of_a_datasets_id_that_holds_no_text_is_refused(
    column: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = datasets.Dataset.from_dict(column | {"other": ["x", "y"]})
    for module in (sources, "jdistill.data.text.text_stream"):
        monkeypatch.setattr(f"{getattr(module, '__name__', module)}.dataset_table", lambda *_: table)
    with pytest.raises(UserError, match="column 'text' holds .*, not text; .*: other"):
        read_texts("owner/name", "text")
    with pytest.raises(UserError, match="column 'text' holds .*, not text"):
        next(iter(TextStream("owner/name", "text")))


def test_the_only_split_of_a_datasets_id_is_named(told: pytest.LogCaptureFixture) -> None:
    assert hub.train_of({"test": "table"}, "owner/name", "config.text") == "table"
    assert "owner/name has no train split; its only one, 'test', is taken" in told.text


def test_sentences_that_are_no_strings_are_refused(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        rows = [{"sentence": f"text {i}", "label": i % 2, "idx": i} for i in range(4)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(read_files(tmp_path)[0]["train"]) == 4
    (tmp_path / "dev.jsonl").write_text('{"sentence": ["a", "b"], "label": 1}\n')
    with pytest.raises(UserError, match="dev.jsonl, line 1: 'sentence' holds list, not text"):
        read_files(tmp_path)


def test_a_dataset_without_a_train_split_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "jdistill.data.sets.task_files.dataset_splits", lambda *_: {"validation": [{"sentence": "a", "label": 0}]}
    )
    with pytest.raises(UserError, match="the dataset has no split 'train'; it has validation"):
        read_dataset("sst2", "owner/name")


def test_rows_of_splits_that_are_not_read_are_counted(told: pytest.LogCaptureFixture) -> None:
    splits = ["dev"] * 3 + ["test"] * 2 + ["", "validation"]
    pairs = Pairs([f"q{i}" for i in range(7)], ["p"] * 7, [i % 2 == 0 for i in range(7)], splits)
    train, test = train_and_test(pairs, "dev", "test", 0, "config.symmetric")
    assert (len(train), len(test)) == (3, 2)
    assert "are not read: 1 of no split, 1 of 'validation'" in told.text


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,text\n1,a\n2,b\n")
    with pytest.raises(UserError, match="a.csv line 1: 2 columns are called 'text'"):
        read_texts(str(tmp_path / "a.csv"))


def test_a_list_of_translations_in_a_table_without_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('source,translations\na,"[""c"", ""d""]"\nb,[not a list\n')
    rows = [as_pair(row) for row in keep_pairs(str(path), "config.text_pairs", tmp_path / "kept").texts]
    assert [(row.source, row.translation) for row in rows] == [("a", "c"), ("a", "d"), ("b", "[not a list")]


def test_line_ends_and_marks_of_other_systems(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"one\rtwo\rthree")
    with pytest.raises(UserError, match="old.txt line 1: a carriage return stands within it"):
        read_texts(str(tmp_path / "old.txt"))
    (tmp_path / "two.txt.gz").write_bytes(2 * gzip.compress(b"\xef\xbb\xbfone\r\n"))
    assert read_texts(str(tmp_path / "two.txt.gz")).texts == ["one"]


def test_a_mark_before_the_first_judgement_is_no_part_of_its_query(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "a text"}\n')
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "a"}\n')
    (tmp_path / "qrels" / "test.tsv").write_bytes(b"\xef\xbb\xbfq1\td1\t1\n")
    assert read_collection(tmp_path).relevant == {"q1": {"d1": 1}}


def test_a_table_that_may_lack_its_header_is_told(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.csv").write_text("The cat sat.\nThe dog ran.\n")
    assert read_texts(str(tmp_path / "a.csv")).texts == ["The dog ran."]
    assert "a.csv is read by its first line, 'The cat sat.', as the name of its column" in told.text


def test_a_weight_beyond_all_measure_is_refused() -> None:
    with pytest.raises(UserError, match="the weight '1e18' of a.txt is no positive number up to 1,000,000"):
        text_sources("a.txt*1e18")


def test_a_path_that_is_called_as_a_source_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wordnet").mkdir()
    assert reader_of("wordnet", "config.text") is not None
    assert "write ./wordnet for that" in told.text and reader_of("./wordnet", "config.text") is None
