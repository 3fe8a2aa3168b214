"""Batches that are computed at the same time: the vectors of one after another, and no program compiled twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import make_encoder, sentences

from jdistill.core import sharding
from jdistill.encoder import encoder, vectors
from jdistill.encoder.vectors import fill_vectors

IDS = [[2, *range(5, 5 + number % 11), 3] for number in range(90)]
LIMITS = 0, 32, 8  # pad_id, max_length, batch_size


def sums(batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    ids, mask = batch
    return np.stack([(ids * mask).sum(1), mask.sum(1)], axis=1).astype(np.float32)


def filled(embed: Callable[[Any], Any], at_once: int) -> np.ndarray:
    out = np.zeros((len(IDS), 2), np.float32)
    fill_vectors(out, IDS, LIMITS, embed, None, at_once)
    return out


def test_several_at_once_give_each_text_its_own_vector() -> None:
    def slow_at_times(batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        time.sleep(0.002 * (int(batch[0].sum()) % 4))
        return sums(batch)

    expected = np.array([[sum(row), len(row)] for row in IDS], np.float32)
    for at_once in (1, 2, 3):
        np.testing.assert_array_equal(filled(slow_at_times, at_once), expected)


def test_no_more_at_once_than_said_and_the_first_of_a_shape_ends_before_its_second() -> None:
    events: list[tuple[tuple[int, ...], int]] = []  # the shape, and 1 where a batch of it begins, -1 where it ends

    def recorded(batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        events.append((batch[0].shape, 1))
        time.sleep(0.01)
        events.append((batch[0].shape, -1))
        return sums(batch)

    filled(recorded, 2)
    assert np.cumsum([change for _, change in events]).max() == 2
    shapes = {shape for shape, _ in events}
    assert len(shapes) > 1
    for shape in shapes:
        assert [change for other, change in events if other == shape][:2] == [1, -1]


def test_an_error_of_one_batch_ends_the_whole() -> None:
    def fails(batch: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        if (batch[1].sum(1) == 7).any():
            raise ValueError("of this batch")
        return sums(batch)

    with pytest.raises(ValueError, match="of this batch"):
        filled(fails, 2)


def test_an_encoder_gives_the_same_vectors_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = make_encoder(), sentences(150)
    monkeypatch.setattr(encoder, "at_once", lambda: 2)
    two = model.encode(texts, batch_size=16)
    monkeypatch.setattr(encoder, "at_once", lambda: 1)
    np.testing.assert_array_equal(two, model.encode(texts, batch_size=16))


def test_two_on_a_cpu_of_several_cores_and_one_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors.jax, "device_count", lambda: 1)
    for platform, cores, expected in (("cpu", 2, 2), ("cpu", 1, 1), ("gpu", 16, 1)):
        monkeypatch.setattr(sharding, "platform", lambda platform=platform: platform)
        monkeypatch.setattr(vectors, "core_count", lambda cores=cores: cores)
        assert vectors.at_once() == expected
    monkeypatch.setattr(vectors.jax, "device_count", lambda: 8)
    monkeypatch.setattr(sharding, "platform", lambda: "cpu")
    assert vectors.at_once() == 1
