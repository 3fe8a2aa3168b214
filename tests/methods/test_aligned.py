"""loss.align: the equation, W among the student's own weights, a student that comes into its teacher's space, and where it cannot be."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest
from ibkd_setting import config, evaluate, setting

from jdistill.core.errors import UserError
from jdistill.methods import METHODS
from jdistill.retrieval.index import unit_rows
from jdistill.train.step import make_gradient

ALIGNED: dict[str, Any] = {"loss.align": 0.5, "triplets": ""}


@pytest.mark.parametrize("name", ["ibkd", "mse", "crd"])
def test_the_term_is_the_squared_distance_of_unit_vectors_by_the_exported_W(name: str) -> None:
    aligned, batch = setting(name, **ALIGNED, seed=3)
    plain, _ = setting(name, triplets="", seed=3)
    assert "W" not in aligned.params and aligned.student.dim == batch["teacher"].shape[1]
    # A W of its own, so that a student's vectors are not the pooled states.
    rng = np.random.default_rng(0)
    W_DxT = rng.standard_normal(aligned.student.dense[0]["kernel"].shape).astype(np.float32)
    params = aligned.params | {"student": aligned.params["student"] | {"dense": {"0": {"kernel": W_DxT}}}}
    total, metrics, reps = evaluate(aligned, batch, params)
    vectors = reps["sentence"].astype(np.float64) @ W_DxT
    naive = 0.0
    for mine, theirs in zip(vectors, batch["teacher"].astype(np.float64), strict=True):
        naive += np.square(mine / np.linalg.norm(mine) - theirs / np.linalg.norm(theirs)).sum() / len(vectors)
    np.testing.assert_allclose(metrics["align"], naive, rtol=1e-5)
    beside = (
        {"student": plain.params["student"]}
        | ({"W": W_DxT} if "W" in plain.params else {})
        | {name: part for name, part in params.items() if name != "student"}
    )
    alone, _, _ = evaluate(plain, batch, beside)
    np.testing.assert_allclose(total, alone + 0.5 * naive, rtol=1e-5)
    # What is exported gives these very vectors.
    ids = [row[mask].tolist() for row, mask in zip(batch["ids"], batch["mask"], strict=True)]
    exported = aligned.trained(params).encode_ids(ids)
    np.testing.assert_allclose(unit_rows(exported), unit_rows(vectors.astype(np.float32)), atol=1e-5)


def test_a_student_comes_into_its_teachers_space() -> None:
    """From a random W, by the term's gradient alone: the cosines rise, those of a student beside whose W nothing stands do not matter."""
    method, batch = setting("mse", **ALIGNED | {"loss.align": 100.0})
    rng = np.random.default_rng(1)
    kernel = rng.standard_normal(method.student.dense[0]["kernel"].shape).astype(np.float32)
    params: Any = {"student": method.params["student"] | {"dense": {"0": {"kernel": kernel}}}}
    optimizer = optax.adam(3e-2)
    state = optimizer.init(params)
    gradient, distances = jax.jit(make_gradient(method, 0, dropout=False)), []
    for _ in range(25):
        grads, metrics = gradient(params, method.frozen, batch, np.int32(0))
        distances.append(float(metrics["align"]))
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    assert distances[-1] < 0.25 * distances[0]


def test_what_cannot_stay_in_the_teachers_space_is_refused() -> None:
    for variant in ("", "mse", "crd"):
        cfg = config(variant, **{"loss.align": 1.0})
        with pytest.raises(UserError, match=r"loss.align=1.0 keeps the student .* set --config.triplets="):
            METHODS[cfg.method](cfg)
    cfg = config("hpd", **{"loss.align": 1.0, "output_dim": 8})
    with pytest.raises(UserError, match="HPD's students live on the teacher's principal axes"):
        METHODS[cfg.method](cfg)
