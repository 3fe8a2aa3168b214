"""Tokens kept on disk: streamed in shards, taken up after a kill, the same files as if all had been in memory."""

from __future__ import annotations

import io
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

from jdistill.core.digest import digest
from jdistill.data.batching import kept_tokens
from jdistill.data.batching.kept_tokens import in_this_process, table_name, tokenize_once
from jdistill.data.text.kept_split import split_kept
from jdistill.data.text.kept_texts import keep_source

TEXTS = ["x" * (i % 7) + chr(97 + i % 20) for i in range(50)]


def tokenize(texts: list[str]) -> list[list[int]]:
    return [[ord(character) for character in text] for text in texts]


def naive_files(texts: list[str], rows: list[list[int]], dtype: type) -> dict[str, bytes]:
    """What was written before tokens were streamed, by the ends of the files' names."""
    ids = np.array([token for row in rows for token in row], dtype)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    files = {}
    for name, array in (("ids", ids), ("offsets", offsets)):
        buffer = io.BytesIO()
        np.save(buffer, array)
        files[f"{name}.npy"] = buffer.getvalue()
    sums = {"ids": zlib.crc32(ids.data), "offsets": zlib.crc32(offsets.data)}
    return files | {"json": (json.dumps(sums, indent=2) + "\n").encode()}


@pytest.mark.parametrize("chunk", [1, 7, 50, 1000])
@pytest.mark.parametrize("wide", [False, True])
def test_files_are_those_of_tokens_in_memory(tmp_path: Path, chunk: int, wide: bool) -> None:
    def tokens(texts: list[str]) -> list[list[int]]:
        return [
            [*row, 70_000] if wide and text == TEXTS[-1] else row
            for text, row in zip(texts, tokenize(texts), strict=True)
        ]

    tokenize_once(TEXTS, in_this_process(tokens), "t", tmp_path, chunk=chunk)
    files = naive_files(TEXTS, tokens(TEXTS), np.int32 if wide else np.uint16)
    name = digest("t", TEXTS)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        f"{name}.{end}": content for end, content in files.items()
    }


def test_tokens_from_before_are_found(tmp_path: Path) -> None:
    for end, content in naive_files(TEXTS, tokenize(TEXTS), np.uint16).items():
        (tmp_path / f"{digest('t', TEXTS)}.{end}").write_bytes(content)

    def never(texts: list[str]) -> list[list[int]]:
        raise AssertionError("asked")

    table = tokenize_once(TEXTS, in_this_process(never), "t", tmp_path)
    assert table.lists(np.arange(50)) == tokenize(TEXTS) and isinstance(table.offsets, np.memmap)


def test_no_text_at_all_is_a_table(tmp_path: Path) -> None:
    for _ in range(2):
        table = tokenize_once([], in_this_process(tokenize), "t", tmp_path)
        assert len(table) == 0 and table.lengths.tolist() == []


@pytest.mark.parametrize("damage", [None, "cut", "flip"])
def test_a_killed_tokenising_loses_a_shard_and_ends_as_one_that_was_not(tmp_path: Path, damage: str | None) -> None:
    class Killed(BaseException): ...

    seen: list[str] = []

    def dies(texts: list[str]) -> list[list[int]]:
        if len(seen) >= 24:
            raise Killed
        seen.extend(texts)
        return tokenize(texts)

    with pytest.raises(Killed):
        tokenize_once(TEXTS, in_this_process(dies), "t", tmp_path / "killed", chunk=8)
    shards = sorted((tmp_path / "killed").glob(".jdistill-shards-*/*.npz"))
    assert len(shards) == 3
    if damage:
        content = bytearray(shards[1].read_bytes())
        content[80] ^= 1
        shards[1].write_bytes(content if damage == "flip" else content[:50])
    asked: list[str] = []
    table = tokenize_once(
        TEXTS, in_this_process(lambda texts: asked.extend(texts) or tokenize(texts)), "t", tmp_path / "killed", chunk=8
    )
    assert asked == (TEXTS[8:16] if damage else []) + TEXTS[24:]
    tokenize_once(TEXTS, in_this_process(tokenize), "t", tmp_path / "whole", chunk=8)
    assert table.lists(np.arange(50)) == tokenize(TEXTS)
    files = [{path.name: path.read_bytes() for path in (tmp_path / of).iterdir()} for of in ("killed", "whole")]
    assert files[0] == files[1]


def test_a_large_table_has_its_lengths_and_a_name_without_reading_the_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"text {i}" for i in range(60)))
    kept = keep_source(str(tmp_path / "a.txt"), "", "config.text", tmp_path / "cache")
    train, _, _ = split_kept(kept, [], 5, 0, 0)
    small = table_name(train, "t")
    assert small == digest("t", list(train))
    monkeypatch.setattr(kept_tokens, "LARGE", 40)
    with pytest.MonkeyPatch.context() as unread:
        unread.setattr(type(train), "__iter__", None)
        assert table_name(train, "t") == digest("t", train.fingerprint) != small
    for _ in range(2):
        table = tokenize_once(train, in_this_process(tokenize), "t", tmp_path / "tokens", chunk=9)
        assert isinstance(table.lengths, np.memmap) and (table.lengths == np.diff(table.offsets)).all()
        assert table.lengths.dtype == np.int32
    (path,) = (tmp_path / "tokens").glob("*.lengths.npy")
    path.write_bytes(path.read_bytes()[:-4])
    assert (
        tokenize_once(train, in_this_process(tokenize), "t", tmp_path / "tokens").lengths == np.diff(table.offsets)
    ).all()
