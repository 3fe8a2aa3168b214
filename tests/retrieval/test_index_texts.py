"""The texts beside an index: read when asked for, whatever characters they hold, and refused where a line is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jdistill.core.sorted_keys import keys_of_texts
from jdistill.retrieval.index_texts import IndexTexts, write_texts

TEXTS = ["a river", "", 'a "quoted" stone\nof two lines', "\u2028 \u00e4 \U0001f600", "\\", '"']


@pytest.fixture
def stored(tmp_path: Path) -> IndexTexts:
    write_texts(tmp_path / "texts.jsonl", TEXTS)
    return IndexTexts(tmp_path / "texts.jsonl")


def test_they_are_what_was_written(stored: IndexTexts) -> None:
    assert stored == TEXTS and list(stored) == TEXTS and len(stored) == len(TEXTS)
    assert stored[-1] == '"' and stored[1:4] == TEXTS[1:4] and stored[::2] == TEXTS[::2]
    assert stored.take(np.array([4, 0, 4])) == ["\\", "a river", "\\"]
    assert [(text, stored[0]) for text in stored] == [
        (text, "a river") for text in TEXTS
    ]  # read while it is gone through
    np.testing.assert_array_equal(stored.text_keys(), keys_of_texts(TEXTS))


def test_one_that_was_replaced_is_read_to_its_end(tmp_path: Path, stored: IndexTexts) -> None:
    write_texts(tmp_path / "new", ["other"])
    (tmp_path / "new").replace(tmp_path / "texts.jsonl")
    assert stored == TEXTS


@pytest.mark.parametrize("line", ["7", '"', "null", "", '["a"]', '"cut short'])
def test_a_line_that_is_no_text_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "texts.jsonl").write_text(f'"a"\n{line}\n"b"\n')
    with pytest.raises(ValueError, match="texts.jsonl holds a row that is no text, in line 2"):
        IndexTexts(tmp_path / "texts.jsonl")


def test_of_no_texts_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").touch()
    assert len(IndexTexts(tmp_path / "texts.jsonl")) == 0
