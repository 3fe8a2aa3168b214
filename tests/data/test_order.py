"""The order of an epoch: numpy's permutation up to a size, as ever; computed beyond, every row once, a batch found by its number."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from jdistill.data.batching import order
from jdistill.data.batching.batches import Batches, choose_buckets
from jdistill.data.batching.order import EpochOrder, permuted, sample_rows
from jdistill.data.batching.packing import PackedBatches


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 5), st.integers(0, 5))
def test_every_number_has_its_place(count: int, seed: int, epoch: int) -> None:
    every = permuted(np.arange(count), count, seed, epoch)
    assert sorted(every.tolist()) == list(range(count))
    some = np.random.default_rng(0).integers(0, count, 20)
    assert (permuted(some, count, seed, epoch) == every[some]).all()


def test_a_computed_order_looks_random_and_differs_by_seed_and_epoch() -> None:
    n = 100_000
    orders = [permuted(np.arange(n), n, *of) for of in ((0, 0), (0, 1), (1, 0))]
    for first in orders:
        steps = np.diff(first)
        assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.02 and (steps == 1).mean() < 1e-3
        # Each tenth of the epoch has about a tenth of each tenth of the rows: 1,000 of 10,000, give or take five deviations.
        table = np.histogram2d(np.arange(n), first, bins=10)[0]
        assert np.abs(table - n / 100).max() < 5 * np.sqrt(n / 100)
    assert all((a == b).mean() < 1e-3 for a in orders for b in orders if a is not b)


def test_few_rows_have_numpys_order_bit_for_bit() -> None:
    """What runs that began before went by."""
    whole = EpochOrder(1000, 16, 7)
    rows, rng = whole.rows_of(3, 0)
    theirs = np.random.default_rng([7, 3])
    assert (rows == theirs.permutation(1000)).all() and rng.random() == theirs.random()
    assert whole.window_of(61) == (0, 61) and not whole.windowed
    assert (sample_rows(np.random.default_rng(1), 500, 9) == np.random.default_rng(1).permutation(500)[:9]).all()


def test_many_rows_are_sampled_without_a_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "LARGE", 100)
    drawn = sample_rows(np.random.default_rng(1), 500, 90)
    assert len(set(drawn.tolist())) == 90 and drawn.max() < 500
    assert len(sample_rows(np.random.default_rng(1), 500, 900)) == 500


def make(kind: str, lengths: np.ndarray, batch_size: int) -> Batches | PackedBatches:
    if kind == "packed":
        return PackedBatches(lengths, batch_size, 1, seed=3)
    return Batches(lengths, batch_size, choose_buckets(lengths, 3, 1), seed=3)


@pytest.mark.parametrize("kind", ["packed", "padded"])
@pytest.mark.parametrize("batch_size", [4, 7, 40])
def test_windows_have_each_row_once_and_any_batch_is_found_by_its_number(
    kind: str, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "LARGE", 100)
    monkeypatch.setattr(order, "WINDOW", 32)
    lengths = np.random.default_rng(1).integers(3, 30, 250).astype(np.int32)
    forward, jumping = make(kind, lengths, batch_size), make(kind, lengths, batch_size)
    per_epoch = 250 // batch_size
    assert forward.steps_per_epoch == per_epoch
    seen = [forward.at(step) for step in range(2 * per_epoch)]
    for epoch in (0, 1):
        rows = np.concatenate([rows for _, rows in seen[epoch * per_epoch :][:per_epoch]])
        assert len(set(rows.tolist())) == len(rows) == per_epoch * batch_size
    assert any((a[1] != b[1]).any() for a, b in zip(seen, seen[per_epoch:], strict=False))
    for step in np.random.default_rng(2).permutation(2 * per_epoch).tolist():
        shape, rows = jumping.at(step)
        assert shape == seen[step][0] and (rows == seen[step][1]).all()
        if kind == "padded":
            assert lengths[rows].max() <= shape
    assert 0 <= forward.padding < 1 and forward.shapes_used()


def test_rows_in_groups_keep_the_whole_order(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, groups = np.arange(250) % 20 + 1, np.arange(250) % 2
    before = [Batches(lengths, 8, (20,), 0, groups).at(step) for step in range(30)]
    monkeypatch.setattr(order, "LARGE", 100)
    after = [Batches(lengths, 8, (20,), 0, groups).at(step) for step in range(30)]
    assert all((a[1] == b[1]).all() for a, b in zip(before, after, strict=True))
