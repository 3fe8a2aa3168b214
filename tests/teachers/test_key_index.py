"""The order of a large part's keys, kept beside them: the same answers as by a dict, whatever was appended, struck, cut or damaged."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from jdistill.core import sorted_keys
from jdistill.core.sorted_keys import keys_of_texts
from jdistill.teachers import cache as caches
from jdistill.teachers import cache_parts, key_index, missing
from jdistill.teachers.cache import AnswerCache


def answer(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), sum(map(ord, text))] for text in texts], np.float32)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of more than 8 answers keep their order in a file, in buckets of 4."""
    for module, name, value in (
        (key_index, "KEPT_ABOVE", 8),
        (sorted_keys, "BUCKET_ROWS", 4),
        (caches, "BUCKET_ROWS", 4),
        (missing, "BUCKET_ROWS", 4),
        (missing, "LOOKED_UP", 6),
        (caches, "LOOKED_UP", 6),
    ):
        monkeypatch.setattr(module, name, value)


def row_of_each_key(cache: AnswerCache) -> dict[bytes, int]:
    """As the caches of before had it in memory."""
    keys = [key for part in cache.parts for key in np.array(part.keys).tolist()]
    row_of = {key: row for row, key in enumerate(keys)}
    row_of.pop(cache_parts.STRUCK, None)
    return row_of


texts = st.lists(st.integers(0, 60).map(lambda i: f"text {i}"), max_size=40)
operations = st.one_of(
    st.tuples(st.just("fill"), texts, st.integers(0, 1)),
    st.tuples(st.just("strike"), st.lists(st.integers(0, 200), max_size=3)),
    st.tuples(st.just("cut"), st.sampled_from(["keys", "values", "sums"]), st.integers(0, 400)),
    st.tuples(st.just("spoil index"), st.integers(0, 400)),
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(operations, max_size=7))
def test_a_cache_is_what_a_dict_of_its_keys_is(tmp_path_factory: pytest.TempPathFactory, done: list[tuple]) -> None:
    folder = tmp_path_factory.mktemp("cache")
    for operation in done:
        cache = AnswerCache(folder, 2, writer=operation[2] if operation[0] == "fill" else 0)
        row_of = row_of_each_key(cache)
        assert len(cache) == len(row_of)
        asked: list[str] = []
        match operation:
            case "fill", wanted, _:
                expected = [t for t in dict.fromkeys(wanted) if keys_of_texts([t]).tolist()[0] not in row_of]
                assert cache.fill(wanted, lambda some, asked=asked: asked.extend(some) or answer(some), chunk=7) == len(
                    asked
                )
                assert asked == expected
                np.testing.assert_array_equal(cache.gather(cache.rows(wanted)), answer(wanted).reshape(-1, 2))
            case "strike", rows:
                cache.strike(np.unique([row for row in rows if row < cache.starts[-1]]).astype(np.int64))
            case "cut", end, size:
                for path in sorted(folder.glob(f"*.{end}"))[:1]:
                    path.write_bytes(path.read_bytes()[:size])
            case "spoil index", at:
                for path in folder.glob("*.index"):
                    content = bytearray(path.read_bytes())
                    content[at % len(content)] ^= 0x10
                    path.write_bytes(content)
        every = [f"text {i}" for i in range(60)]
        again = AnswerCache(folder, 2)
        row_of = row_of_each_key(again)
        assert again.rows(every).tolist() == [row_of.get(key, -1) for key in keys_of_texts(every).tolist()]
        assert again.lacks(every) == sum(key not in row_of for key in keys_of_texts(every).tolist())
    assert not list(folder.glob(".jdistill-*"))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(texts, st.lists(st.integers(0, 200), max_size=2)), max_size=7))
def test_a_cache_that_stays_open_is_what_one_opened_afresh_is(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[list[str], list[int]]]
) -> None:
    cache = AnswerCache(tmp_path_factory.mktemp("cache"), 2)
    every = [f"text {i}" for i in range(60)]
    for wanted, struck in done:
        cache = cache.opened_again()
        cache.fill(wanted, answer, chunk=7)
        cache.strike(np.unique([row for row in struck if row < cache.starts[-1]]).astype(np.int64))
        afresh = AnswerCache(cache.folder, 2)
        assert cache.rows(every).tolist() == afresh.rows(every).tolist() and len(cache) == len(afresh)
        row_of = row_of_each_key(cache)
        assert cache.rows(every).tolist() == [row_of.get(key, -1) for key in keys_of_texts(every).tolist()]


def test_an_index_is_kept_until_many_answers_have_come(tmp_path: Path) -> None:
    AnswerCache(tmp_path, 2).fill([f"text {i}" for i in range(20)], answer)
    (index,) = tmp_path.glob("*.index")
    made = index.stat().st_ino
    AnswerCache(tmp_path, 2).fill([f"text {i}" for i in range(28)], answer)
    assert index.stat().st_ino == made
    cache = AnswerCache(tmp_path, 2)
    cache.fill([f"text {i}" for i in range(29)], answer)
    assert index.stat().st_ino != made and len(cache) == 29
    assert (cache.rows([f"text {i}" for i in range(29)]) == np.arange(29)).all()
