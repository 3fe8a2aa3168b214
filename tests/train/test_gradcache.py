"""GradCache: a batch represented in chunks has the gradient of the whole batch, whatever the chunks."""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from parity import assert_close

from jdistill.losses.embedding import info_nce
from jdistill.train.method import Method
from jdistill.train.step import make_gradient

ROWS, D, E = 12, 5, 4  # D: width of an input, E: of its representation


def represent(params: dict, frozen: dict, batch: dict, rng: jax.Array | None) -> dict[str, jax.Array]:
    return {side: jnp.tanh(batch[side] @ params["w"]) for side in ("anchor", "positive")}


def objective(params: dict, frozen: dict, reps: dict, batch: dict) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Every row meets every other, and a parameter is read here too."""
    loss = info_nce(reps["anchor"], reps["positive"], 0.5) + jnp.square(params["b"] - reps["anchor"].mean())
    return loss, {"loss": loss}


def terms(params: dict, batch: dict) -> dict[str, np.ndarray]:
    """By parameter, the sum of the sizes of what its gradient adds up: float64."""
    reps = represent(params, {}, batch, None)
    of_reps, of_b = jax.grad(lambda reps, b: objective({"b": b}, {}, reps, batch)[0], (0, 1))(reps, params["b"])
    sums = [
        np.abs(np.float64(batch[side])).T @ np.abs(np.float64(of_reps[side]) * (1 - np.float64(reps[side]) ** 2))
        for side in reps
    ]
    return {"w": sum(sums), "b": np.abs(np.float64(of_b))}


@cache
def compiled_gradient(chunk: int):
    """(params, batch) -> (gradient, metrics) of ROWS rows; each chunk size is a program of its own."""
    method = Method({}, None, {}, represent, objective)  # type: ignore[arg-type]
    gradient = jax.jit(make_gradient(method, 0, dropout=False, chunk_size=chunk))
    return lambda params, batch: gradient(params, {}, batch, np.int32(0))


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.sampled_from([1, 4, 5, 7, 12]), st.integers(0, 2**32 - 1))  # 5 and 7 do not divide the rows
def test_chunks_of_any_size_have_the_gradient_of_the_whole(chunk: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    params = {"w": rng.normal(size=(D, E)).astype(np.float32), "b": np.float32(0.3)}
    batch = {side: rng.normal(size=(ROWS, D)).astype(np.float32) for side in ("anchor", "positive")}
    whole, metrics = compiled_gradient(0)(params, batch)
    chunked, same = compiled_gradient(chunk)(params, batch)
    # Twice as many terms as rows, in another order; represented, compared, and both backwards, on either side.
    for name, largest in terms(params, batch).items():
        assert_close(chunked[name], whole[name], 2 * ROWS, depth=8, largest=largest, what=name)
    assert_close(same["loss"], metrics["loss"], 2 * ROWS, depth=8)
    assert np.abs(whole["w"]).max() > 0.01
