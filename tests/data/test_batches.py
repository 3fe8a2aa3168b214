"""Batches: exact buckets, every text, a position that is the step number, tokens kept on disk."""

from __future__ import annotations

import dataclasses
import zlib
from itertools import combinations
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from jdistill.core.errors import UserError
from jdistill.data.batching.batches import (
    Batches,
    TokenTable,
    choose_buckets,
)
from jdistill.data.batching.kept_tokens import in_this_process, tokenize_once


def padding(lengths: np.ndarray, widths: tuple[int, ...]) -> int:
    return int(sum(min(w for w in widths if w >= n) - n for n in lengths))


@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_buckets_are_the_best_there_are(count: int, multiple: int) -> None:
    lengths = np.random.default_rng(0).gamma(3.0, 4.0, 400).astype(int) + 2
    top = -(-lengths.max() // multiple) * multiple
    candidates = [w for w in range(multiple, top, multiple)]
    best = min(padding(lengths, (*some, top)) for k in range(count) for some in combinations(candidates, k))
    widths = choose_buckets(lengths, count, multiple)
    assert len(widths) <= count and all(w % multiple == 0 for w in widths)
    assert padding(lengths, widths) == best


def batches(count: int = 1000, batch_size: int = 16, seed: int = 3) -> Batches:
    lengths = np.random.default_rng(1).gamma(4.0, 5.0, count).astype(int) + 3
    return Batches(lengths, batch_size, choose_buckets(lengths, 10, 4), seed)


def test_an_epoch_holds_every_text_once_but_for_the_last_partial_batch() -> None:
    b = batches(1003)
    rows = np.concatenate([b.at(step)[1] for step in range(b.steps_per_epoch)])
    assert b.steps_per_epoch == 62 and len(rows) == len(set(rows.tolist())) == 992
    later = np.concatenate([b.at(step)[1] for step in range(62, 124)])
    assert set(rows.tolist()) | set(later.tolist()) > set(rows.tolist())
    assert rows.tolist() != later.tolist()


def test_every_text_fits_its_batch_and_padding_is_below_a_tenth() -> None:
    b = batches(20_000, 32)
    for step in range(b.steps_per_epoch):
        width, rows = b.at(step)
        assert b.lengths[rows].max() <= width
    assert b.padding < 0.10


def test_a_position_is_a_step_number() -> None:
    forward, jumping = batches(), batches()
    seen = [forward.at(step) for step in range(150)]
    for step in (149, 3, 70, 3):
        width, rows = jumping.at(step)
        assert width == seen[step][0]
        np.testing.assert_array_equal(rows, seen[step][1])
    assert any((batches(seed=4).at(s)[1] != seen[s][1]).any() for s in range(5))


def test_fewer_texts_than_a_batch_is_an_error() -> None:
    with pytest.raises(UserError, match="3 training texts do not fill one batch of batch_size=16"):
        Batches(np.array([3, 4, 5]), 16, (8,), 0)


def test_tokens_are_kept_and_found_by_content(tmp_path: Path) -> None:
    calls: list[int] = []

    def tokenize(texts: list[str]) -> list[list[int]]:
        calls.append(len(texts))
        return [[1, *map(len, text.split()), 2] for text in texts]

    texts = ["one three five", "two", "a bb ccc dddd"]
    table = tokenize_once(texts, in_this_process(tokenize), "tokenizer A", tmp_path, chunk=2)
    assert calls == [2, 1]
    again = tokenize_once(texts, in_this_process(tokenize), "tokenizer A", tmp_path)
    assert calls == [2, 1] and again.ids.tolist() == table.ids.tolist() == [1, 3, 5, 4, 2, 1, 3, 2, 1, 1, 2, 3, 4, 2]
    tokenize_once(texts, in_this_process(tokenize), "tokenizer B", tmp_path)
    tokenize_once([*texts, "more"], in_this_process(tokenize), "tokenizer A", tmp_path)
    assert calls == [2, 1, 3, 4]


def test_padded_rows() -> None:
    table = TokenTable(np.array([7, 8, 9, 5, 6], np.uint16), np.array([0, 3, 3, 5]))
    ids, mask = table.padded(np.array([2, 0, 1]), 4, 99)
    assert ids.tolist() == [[5, 6, 99, 99], [7, 8, 9, 99], [99, 99, 99, 99]]
    assert mask.sum(1).tolist() == [2, 3, 0] and ids.dtype == np.int32


def test_some_texts_of_a_table_are_evenly_spaced() -> None:
    table = TokenTable(np.arange(45, dtype=np.uint16), np.cumsum([0, *range(10)]))  # text i has i tokens
    assert table.some(4).lists(np.arange(4)) == table.lists(np.array([0, 3, 6, 9]))
    assert table.some(4).ids.dtype == np.uint16
    for whole in (table.some(10), table.some(99)):
        assert whole.lists(np.arange(10)) == table.lists(np.arange(10))


def test_joined_tables() -> None:
    one = TokenTable(np.array([5, 6, 7], np.uint16), np.array([0, 2, 3]))
    other = TokenTable(np.array([70_000, 9], np.int32), np.array([0, 0, 2]))
    joined = one.joined(other)
    assert joined.lists(np.arange(4)) == [[5, 6], [7], [], [70_000, 9]]
    assert joined.lengths.tolist() == [2, 1, 0, 2]


@st.composite
def arbitrary_batches(draw: st.DrawFn) -> Batches:
    """Batches of 1 to 60 texts in 1 to 3 groups, one of which fills a batch."""
    lengths = np.array(draw(st.lists(st.integers(1, 40), min_size=1, max_size=60)))
    groups = np.array(draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths))))
    batch_size = draw(st.integers(1, 7))
    assume(np.bincount(groups).max() >= batch_size)
    widths = choose_buckets(lengths, draw(st.integers(1, 4)), draw(st.sampled_from([1, 4])))
    return Batches(lengths, batch_size, widths, draw(st.integers(0, 3)), groups if draw(st.booleans()) else None)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(arbitrary_batches(), st.integers(0, 2))
def test_any_epoch_has_each_row_once_but_fewer_than_a_batch_of_each_group(b: Batches, epoch: int) -> None:
    steps = [b.at(epoch * b.steps_per_epoch + i) for i in range(b.steps_per_epoch)]
    for width, rows in steps:
        assert len(rows) == b.batch_size and b.lengths[rows].max() <= width and width in b.widths
        assert len(set(b.group_of[rows].tolist())) == 1
    rows = np.concatenate([rows for _, rows in steps])
    assert len(set(rows.tolist())) == len(rows)
    left = np.setdiff1d(np.arange(len(b.lengths)), rows)
    assert (np.bincount(b.group_of[left], minlength=1) < b.batch_size).all()


@settings(derandomize=True, deadline=None, max_examples=100)
@given(arbitrary_batches(), st.lists(st.integers(0, 200), min_size=1, max_size=5))
def test_any_step_is_the_same_batch_whatever_was_asked_before(b: Batches, steps: list[int]) -> None:
    begun_there = [dataclasses.replace(b).at(step) for step in steps]
    for step, (width, rows) in zip(steps, begun_there, strict=True):
        again, same_rows = b.at(step)
        assert again == width
        np.testing.assert_array_equal(same_rows, rows)
    forward = dataclasses.replace(b)
    last = [forward.at(step) for step in range(max(steps) + 1)][-1]
    np.testing.assert_array_equal(last[1], begun_there[steps.index(max(steps))][1])


@settings(derandomize=True, deadline=None, max_examples=50)
@given(arbitrary_batches())
def test_every_row_has_its_turn(b: Batches) -> None:
    """Also where a width has too few rows for a batch, whatever has moved up to it; but not of a group that is less than a batch."""
    seen = {row for step in range(150 * b.steps_per_epoch) for row in b.at(step)[1].tolist()}
    sizes = np.bincount(b.group_of)
    assert seen == set(np.flatnonzero(sizes[b.group_of] >= b.batch_size).tolist())


@pytest.mark.parametrize(
    ("short", "middle", "long"), [(128, 0, 100), (20, 130, 0), (128, 20, 150)], ids=["widest", "narrower", "in between"]
)
def test_a_width_that_fills_no_batch_is_not_left_out_for_ever(short: int, middle: int, long: int) -> None:
    lengths = np.repeat([4, 8, 12], [short, middle, long])
    b = Batches(lengths, 128, (4, 8, 12), 0)
    assert b.steps_per_epoch == len(lengths) // 128
    seen = np.concatenate([b.at(step)[1] for step in range(20 * b.steps_per_epoch)])
    assert len(np.unique(seen)) == len(lengths)


def test_where_every_width_has_its_turn_the_batches_are_those_of_ever() -> None:
    """A run that began before the order of others was mended goes on with the same ones."""
    b = batches(1010)
    rows = np.concatenate([b.at(step)[1] for step in range(3 * b.steps_per_epoch)])
    assert zlib.crc32(rows.astype("<i8").tobytes()) == 3416215761
