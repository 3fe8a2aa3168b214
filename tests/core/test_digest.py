"""The digest of texts: nothing else has the same, and each place that names data by its content uses it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jdistill.core.digest import digest
from jdistill.data.batching.kept_tokens import in_this_process, tokenize_once
from jdistill.feeds.corpus import Corpus

APART = [
    [["a\nb"], ["a", "b"], ["a", "", "b"], ["ab"], ["a"], [], [""], ["", ""], ["a\n", "b"], ["a", "\nb"], ["b", "a"]],
    [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        (b"abc",),
        (["abc"],),
        (["a", "bc"],),
        ("a", ["bc"]),
        (["a"], ["bc"]),
        (["a"], "bc"),
    ],
    [np.zeros(4, np.int8), np.zeros(1, np.int32), np.zeros((2, 2), np.int8), np.zeros(4, np.uint8), bytes(4)],
]


@pytest.mark.parametrize("of", APART)
def test_what_differs_has_another_digest(of: list) -> None:
    found = [digest(*one) if isinstance(one, tuple) else digest(one) for one in of]
    assert len(set(found)) == len(found)
    assert found == [digest(*one) if isinstance(one, tuple) else digest(one) for one in of]  # and itself the same


def test_a_file_s_name_need_not_be_utf_8() -> None:
    assert len({digest(name) for name in ("donn\udce9es.tsv", "données.tsv", "donn?es.tsv")}) == 3
    assert digest("données.tsv") == "ebdb099650f81f79518594e654df5505"  # as before


def test_corpora_that_differ_in_where_a_text_ends_share_nothing(tmp_path: Path) -> None:
    one, two = ["a\nb", "c"], ["a", "b\nc"]
    assert Corpus(one, [], 0).fingerprint != Corpus(two, [], 0).fingerprint

    def tokenize(texts: list[str]) -> list[list[int]]:
        return [[len(text)] * len(text) for text in texts]

    for texts in (one, two, ["a", "b", "c"], ["a\nb\nc"]):
        table = tokenize_once(texts, in_this_process(tokenize), "tokenizer", tmp_path)
        assert table.lengths.tolist() == [len(text) for text in texts]


@pytest.mark.parametrize("end", ["ids.npy", "offsets.npy", "json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete", "empty"])
def test_kept_tokens_that_are_damaged_are_made_anew(tmp_path: Path, end: str, damage: str) -> None:
    texts = [f"text {i}" for i in range(30)]

    def tokenize(batch: list[str]) -> list[list[int]]:
        return [[ord(character) for character in text] for text in batch]

    tokenize_once(texts, in_this_process(tokenize), "tokenizer", tmp_path)
    (path,) = tmp_path.glob(f"*.{end}")
    content = bytearray(path.read_bytes())
    content[-2] ^= 4
    if damage == "delete":
        path.unlink()
    else:
        path.write_bytes({"flip": content, "cut": content[: len(content) // 2], "empty": b""}[damage])
    table = tokenize_once(texts, in_this_process(tokenize), "tokenizer", tmp_path)
    assert table.lists(np.arange(30)) == tokenize(texts)
    assert not list(tmp_path.glob(".*"))


def test_a_tokenizer_that_loses_a_text_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 rows for 2 texts"):
        tokenize_once(["a", "b"], in_this_process(lambda batch: [[1]]), "tokenizer", tmp_path)
