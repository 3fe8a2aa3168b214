"""Alignment, uniformity and covariance against loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jdistill.errors import UserError
from jdistill.evals import geometry


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_alignment_and_uniformity_against_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 11, 5)).astype(np.float32)
    u, v = unit(x.astype(np.float64)), unit(y.astype(np.float64))
    assert geometry.alignment(x, y) == pytest.approx(
        np.mean([((a - b) ** 2).sum() for a, b in zip(u, v, strict=True)]), rel=1e-5
    )
    pairs = [np.exp(-2 * ((a - b) ** 2).sum()) for a, b in itertools.combinations(u, 2)]
    assert geometry.uniformity(x) == pytest.approx(np.log(np.mean(pairs)), abs=1e-5)
    monkeypatch.setattr(geometry, "BLOCK", 4)
    assert geometry.uniformity(x) == pytest.approx(np.log(np.mean(pairs)), abs=1e-5)


def test_equal_vectors_are_aligned_and_not_uniform() -> None:
    x = np.ones((6, 4), np.float32)
    assert geometry.alignment(x, 3 * x) == pytest.approx(0, abs=1e-9)
    assert geometry.uniformity(x) == pytest.approx(0, abs=1e-6)
    with pytest.raises(UserError, match="at least 2 texts, not 1"):
        geometry.uniformity(x[:1])


def test_covariance_of_isotropic_and_of_copied_dimensions() -> None:
    x = np.random.default_rng(1).normal(size=(20_000, 6))
    isotropic = geometry.covariance(x)
    np.testing.assert_allclose(np.diag(isotropic), 1, atol=0.05)
    assert geometry.mean_off_diagonal(isotropic) < 0.02
    copied = geometry.covariance(np.concatenate([x, x], axis=1))
    assert np.abs(copied[:6, 6:] - copied[:6, :6]).max() < 1e-6
    assert geometry.mean_off_diagonal(np.array([[9.0, -1.0], [3.0, 9.0]])) == 2.0
