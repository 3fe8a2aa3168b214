"""The start of D2LLM's modules: a mean of tokens, standardised vectors, a similarity of two of them."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import make_decoder
from parity import assert_close
from simtde_setting import random_tokens

from jdistill.encoder.encoder import Encoder
from jdistill.models.interaction import BRANCHES, iem
from jdistill.models.pma import pma
from jdistill.students.pma import (
    beside_cosine,
    mean_pma,
    similarity_iem,
    start_modules,
    usable_deviation,
)

D = 96


def test_the_pooler_starts_as_the_mean_of_the_tokens() -> None:
    rng = np.random.default_rng(0)
    states = rng.standard_normal((5, 9, D)).astype(np.float32)
    mask = np.arange(9) < np.array([9, 1, 4, 8, 2])[:, None]
    got = np.asarray(pma(mean_pma(D, rng), states, mask, 32))
    mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    for row, expected in zip(got, mean, strict=True):
        assert np.corrcoef(row, expected)[0, 1] > 0.99


@pytest.mark.parametrize("hidden", [512, 514])
def test_the_module_starts_as_a_similarity(hidden: int) -> None:
    rng = np.random.default_rng(0)
    centre, spread = rng.normal(0, 3, D).astype(np.float32), rng.uniform(0.1, 9, D).astype(np.float32)
    params = similarity_iem(centre, spread, rng, hidden)
    x, noise = rng.standard_normal((2, 400, D)).astype(np.float32)
    cosine = np.linspace(-1, 1, 400, dtype=np.float32)[:, None]
    y = cosine * x + np.sqrt(1 - cosine**2) * noise
    x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) * D**0.5 for rows in (x, y))
    real = np.clip((x * y).sum(1) / D, -1, 1)
    for branch in BRANCHES:
        z, _ = iem(params, x * spread + centre, y * spread + centre, branch)
        expected = 12.5 * (np.sqrt(1 + real) - np.sqrt(1 - real))
        assert np.abs(z - expected).mean() < 1.5  # it is the mean over 128 directions; sizes reach 17.7
        assert np.corrcoef(z, expected)[0, 1] > 0.98


def test_beside_cosines_the_module_starts_by_adding_nothing_and_learns_at_once() -> None:
    rng = np.random.default_rng(0)
    params = beside_cosine(similarity_iem(np.zeros(D, np.float32), np.ones(D, np.float32), rng, 64), 20.0)
    x, y = rng.standard_normal((2, 50, D)).astype(np.float32)
    cosines = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    for branch in BRANCHES:
        assert_close(iem(params, x, y, branch)[0], 20 * cosines, D, largest=20.0)
    gradient = jax.grad(lambda p: jnp.square(iem(p, x, y, "symmetric")[0] - 1).sum())(params)
    assert np.abs(gradient["score"]["kernel"]).max() > 0 and gradient["cosine"] != 0


@pytest.mark.parametrize("pooling", ["pma", "mean", "lasttoken"])
def test_standardised_vectors_meet_the_module(pooling: str) -> None:
    model, tokens = replace(make_decoder(), pooling=pooling, normalize=False), random_tokens(300)
    pooler, head = start_modules("similarity", model, 512, np.random.default_rng(0), tokens)
    vectors = replace(model, pooler=pooler).encode_ids(tokens.lists(np.arange(300)))
    centred = (vectors - vectors.mean(0)) / vectors.std(0)
    if pooling == "pma":
        np.testing.assert_allclose(vectors, centred, atol=1e-3)
    lengths = np.linalg.norm(centred, axis=1)
    cosines = (centred[:-1] * centred[1:]).sum(1) / lengths[:-1] / lengths[1:]
    z, _ = iem(head, vectors[:-1], vectors[1:], BRANCHES[0])
    # Vectors of many lengths, so the logit is no function of the cosine alone.
    assert np.corrcoef(z, cosines)[0, 1] > 0.9
    assert np.abs(z.mean()) < 2  # of texts that have nothing to do with each other


def test_what_hardly_moves_in_the_sample_is_not_made_loud() -> None:
    vectors = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    vectors[:, 2], vectors[:, 3] = 7.0, 7.0 + 1e-6 * vectors[:, 3]
    spread, std = usable_deviation(vectors), vectors.std(0)
    np.testing.assert_allclose(spread[[0, 1, 4, 5]], std[[0, 1, 4, 5]], rtol=1e-6)
    np.testing.assert_allclose(spread[[2, 3]], 0.1 * np.median(std), rtol=1e-6)
    np.testing.assert_array_equal(usable_deviation(vectors[:1]), np.ones(6))
    for count in (3, 7, 20):  # equal vectors whose mean is not exact
        np.testing.assert_array_equal(usable_deviation(np.full((count, 6), 0.1, np.float32)), np.ones(6))


def test_cosines_need_no_module_and_read_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "encode_ids", None)
    model, rng = replace(make_decoder(), pooling="lasttoken", normalize=False), np.random.default_rng(0)
    for start in ("similarity", "random"):
        assert start_modules(start, model, 0, rng, random_tokens(4)) == ({}, {})
