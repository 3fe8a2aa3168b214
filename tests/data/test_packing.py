"""Packed texts: batches of like length, every text once, a layout that holds them, and arrays from which each text is read back."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from jdistill.core.errors import UserError
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.layout import Layout, find_places
from jdistill.data.batching.packing import PackedBatches, deal, pack_texts


def lengths_of(count: int, seed: int = 1) -> np.ndarray:
    return np.minimum(np.random.default_rng(seed).gamma(3.0, 6.0, count).astype(int) + 2, 90)


def table(lengths: np.ndarray) -> TokenTable:
    """Texts whose tokens say whose they are and where they stand: 1000 i + place."""
    ids = np.concatenate([1000 * i + np.arange(length) for i, length in enumerate(lengths)])
    return TokenTable(ids.astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]))


def texts_of(arrays: dict[str, np.ndarray], group: int) -> list[list[int]]:
    """The tokens of a group's texts, read back from its rows one after another."""
    found: list[list[int]] = []
    for k in range(2):
        if f"ids_{k}" in arrays:
            for row, lengths in zip(arrays[f"ids_{k}"][group], arrays[f"lengths_{k}"][group], strict=True):
                ends = np.cumsum(lengths)
                found += [row[end - length : end].tolist() for end, length in zip(ends, lengths, strict=True)]
    return [found[place] for place in arrays["place"][group]]


@given(st.integers(2, 200), st.integers(1, 12), st.integers(0, 2**32))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_texts_are_dealt_once_each_to_groups_of_like_size(texts: int, groups: int, seed: int) -> None:
    texts = -(-texts // groups) * groups
    lengths = lengths_of(texts, seed)
    dealt = deal(lengths, groups)
    assert sorted(dealt.ravel()) == list(range(texts))
    of_groups = lengths[dealt]
    assert (np.diff(of_groups, axis=1) <= 0).all()
    totals = of_groups.sum(1)  # each round evens out what the one before left, but for its own spread
    assert np.ptp(totals) <= np.ptp(lengths)


@pytest.mark.parametrize("batch_size, count", [(64, 1), (64, 2), (48, 3), (128, 8)])
def test_an_epoch_holds_every_text_once_but_for_the_last_partial_batch(batch_size: int, count: int) -> None:
    batches = PackedBatches(lengths_of(1003), batch_size, count, 3)
    steps = batches.steps_per_epoch
    rows = np.concatenate([batches.at(step)[1] for step in range(steps)])
    assert steps == 1003 // batch_size and len(rows) == len(set(rows.tolist())) == steps * batch_size
    later = np.concatenate([batches.at(step)[1] for step in range(steps, 2 * steps)])
    assert set(rows.tolist()) | set(later.tolist()) > set(rows.tolist()) and rows.tolist() != later.tolist()


def test_a_step_is_found_by_its_number_alone() -> None:
    batches, again = (PackedBatches(lengths_of(700), 32, 2, 5, 4) for _ in range(2))
    steps = [batches.at(step) for step in range(50)]
    for step in (49, 3, 21, 0, 30):
        layout, rows = again.at(step)
        assert layout == steps[step][0] and rows.tolist() == steps[step][1].tolist()
    other = PackedBatches(lengths_of(700), 32, 2, 6, 4)
    assert other.at(0)[1].tolist() != steps[0][1].tolist()


def test_the_texts_of_a_batch_do_not_depend_on_its_groups() -> None:
    one, eight = (PackedBatches(lengths_of(2000), 128, count, 5) for count in (1, 8))
    for step in range(40):
        assert sorted(one.at(step)[1]) == sorted(eight.at(step)[1])


@pytest.mark.parametrize("batch_size, count", [(64, 1), (256, 1), (512, 4), (4096, 16)])
def test_padding_is_at_most_3_percent_in_one_layout(batch_size: int, count: int) -> None:
    batches = PackedBatches(lengths_of(20_000), batch_size, count, 0)
    layouts = [batches.at(step)[0] for step in range(2 * batches.steps_per_epoch)]
    assert sum(layout == batches.layout for layout in layouts) >= 0.97 * len(layouts)
    tokens = sum(int(batches.lengths[batches.at(step)[1]].sum()) for step in range(batches.steps_per_epoch))
    places = sum(batches.capacity(layout) for layout in layouts[: batches.steps_per_epoch])
    assert batches.padding <= 0.03 and 1 - tokens / places <= 0.03


@pytest.mark.parametrize("rows", [16, 23, 31, 70])
def test_padding_is_that_of_the_batches_where_an_epoch_has_few(rows: int) -> None:
    for seed in range(8):  # the texts that sit the epoch out may be its longest
        batches = PackedBatches(lengths_of(rows, seed), 16, 1, seed)
        steps = [batches.at(step) for step in range(batches.steps_per_epoch)]
        tokens = sum(int(batches.lengths[of].sum()) for _, of in steps)
        assert batches.padding == pytest.approx(1 - tokens / sum(batches.capacity(layout) for layout, _ in steps))
        assert 0 <= batches.padding < 1


@given(st.integers(1, 4), st.sampled_from([4, 8, 24]), st.integers(1, 4), st.integers(0, 2**32))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_texts_are_read_back_from_their_rows(groups: int, g: int, multiple: int, seed: int) -> None:
    lengths = lengths_of(5 * groups * g, seed)
    tokens, batches = table(lengths), PackedBatches(lengths, groups * g, groups, seed, multiple)
    for step in range(3):
        layout, rows = batches.at(step)
        rows_nxg = rows.reshape(groups, g)
        arrays = pack_texts(tokens, rows_nxg, layout, pad_id=-1)
        assert all(width % multiple == 0 for width in layout.widths)
        assert sum(int((arrays[f"ids_{k}"] >= 0).sum()) for k in range(len(layout.rows))) == lengths[rows].sum()
        for group in range(groups):
            assert texts_of(arrays, group) == tokens.lists(rows_nxg[group])


def test_a_text_longer_than_all_that_the_layout_was_chosen_by_finds_a_row() -> None:
    lengths = np.full(640, 5)
    lengths[-1] = 80
    batches = PackedBatches(lengths, 16, 1, 0)
    long = next(step for step in range(batches.steps_per_epoch) if 639 in batches.at(step)[1])
    layout, rows = batches.at(long)
    assert texts_of(pack_texts(table(lengths), rows[None], layout, -1), 0)[0][-1] == 639_079


def test_what_does_not_fit_is_told() -> None:
    layout = Layout((1, 2), (10, 4), (2, 2))
    lengths = np.array([[9, 4, 2, 2], [9, 5, 1, 1], [10, 2, 2, 2]])
    assert find_places(lengths, layout)[2].tolist() == [True, False, True]
    with pytest.raises(ValueError, match="does not hold"):
        pack_texts(table(lengths[1]), np.arange(4)[None], layout, 0)
    with pytest.raises(UserError, match="30 training texts do not fill one batch of batch_size=32"):
        PackedBatches(lengths_of(30), 32, 1, 0)
