"""float16: what underflows without scaling, the run with it, overflow skipped and, where it never ends, refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import first_layers
from flax.training.dynamic_scale import DynamicScale
from prose import PROSE
from simtde_setting import random_tokens, small_teacher
from simtde_setting import start as small_start

import jdistill
from configs import distilface as config_file
from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.data.batching.batches import Batches, TokenTable
from jdistill.feeds.stage import Start
from jdistill.methods.distilface import build
from jdistill.train import loss_scale
from jdistill.train.dataset import Data
from jdistill.train.loop import train
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import (
    init_state,
    jit_step,
    make_gradient,
    make_step,
)


def trained(start: Start, batch: dict[str, np.ndarray], steps: int, **changes: object) -> tuple[Any, Any, list[float]]:
    """(method, parameters, losses) after so many steps on one batch."""
    cfg = config_file.get_config()
    cfg.batch_size, cfg.pooling, cfg.schedule, cfg.max_steps = len(batch["ids"]), "", "constant", steps
    cfg.update_from_flattened_dict(changes)
    method, mesh = build(cfg, start), sharding.global_mesh()
    optimizer = make_optimizer(cfg, steps)
    state, step = init_state(method, optimizer, mesh), jit_step(make_step(method, optimizer, 0, True), mesh)
    frozen, on_mesh, found = sharding.replicate(method.frozen, mesh), sharding.shard_rows(batch, mesh), []
    for _ in range(steps):
        state, metrics = step(state, frozen, on_mesh)
        found.append(float(metrics["loss"]))
    return method, jax.tree.map(np.asarray, state.params), found


def test_scaling_can_be_left_out_for_comparison() -> None:
    cfg = config_file.get_config("unscaled")
    assert cfg.dtype == "float16"
    params = {"kernel": np.ones(3, np.float32)}
    assert loss_scale.scale_of(make_optimizer(cfg, 10).init(params)) is None
    for changes, scaled in (({"loss_scaling": True}, True), ({"loss_scaling": True, "dtype": "bfloat16"}, False)):
        cfg.update_from_flattened_dict(changes)
        assert (loss_scale.scale_of(make_optimizer(cfg, 10).init(params)) is not None) == scaled


def test_a_scaled_run_ends_with_the_loss_of_float32() -> None:
    tokens = random_tokens(300)
    ids, mask = tokens.padded(np.arange(32), 20, 0)
    start, batch = small_start(small_teacher(), tokens), {"ids": ids, "mask": mask}
    of = {
        dtype: trained(start, batch, 60, **{"dtype": dtype, "learning_rate": 1e-3, "student.layers": 2})[2]
        for dtype in ("float32", "float16", "bfloat16")
    }
    first, last = of["float32"][0], np.mean(of["float32"][-10:])
    assert last < 0.5 * first
    assert np.mean(of["float16"][-10:]) == pytest.approx(last, rel=0.01)
    assert np.mean(of["bfloat16"][-10:]) == pytest.approx(last, rel=0.1)


def test_without_scaling_gradients_of_float16_become_zero(real_teacher: str) -> None:
    # A model that tells sentences apart has a small loss, and gradients too small for float16.
    model = first_layers(jdistill.load(real_teacher), 3)
    tokens = [row[:16] for row in model.tokenize(PROSE[:16])]
    ids, mask = np.zeros((16, 16), np.int32), np.zeros((16, 16), bool)
    for i, row in enumerate(tokens):
        ids[i, : len(row)], mask[i, : len(row)] = row, True
    start = Start(
        model, True, 384, TokenTable(np.zeros(1, np.int32), np.array([0, 1])), lambda rows: np.zeros((1, 384)), None
    )
    _, params, losses = trained(start, {"ids": ids, "mask": mask}, 16, **{"learning_rate": 1e-4})
    assert losses[-1] < 1e-3
    cfg = config_file.get_config()
    cfg.pooling, cfg.dtype = "", "float16"
    method = build(cfg, start)
    gradient = jax.jit(make_gradient(method, 0, dropout=True))

    def share_of_zeros(scale: np.float32) -> float:
        found, _ = gradient(params, method.frozen, {"ids": ids, "mask": mask}, np.int32(99), scale)
        kernels = [np.asarray(x) for x in jax.tree.leaves(found["student"]["model"]["layer_2"]) if x.ndim == 2]
        assert all(np.isfinite(x).all() for x in kernels)
        return float(np.mean([(x == 0).mean() for x in kernels]))

    assert share_of_zeros(np.float32(1)) > 0.1
    assert share_of_zeros(np.float32(2**16)) < 0.01


def test_an_overflow_is_skipped_and_the_scale_halved_and_grown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROW_AFTER", 3)
    optimizer = loss_scale.with_loss_scale(optax.adam(0.1))
    params = {"w": jnp.ones(3)}
    state = optimizer.init(params)
    assert float(loss_scale.scale_of(state)) == 2**16 and loss_scale.scale_of(optax.adam(0.1).init(params)) is None
    updates, after = optimizer.update({"w": jnp.array([1.0, jnp.inf, 1.0])}, state, params)
    assert not np.any(updates["w"]) and float(after.scale) == 2**15
    jax.tree.map(np.testing.assert_array_equal, after.inner, state.inner)
    plain, plain_state = optax.adam(0.1), optax.adam(0.1).init(params)
    scales = []
    for i in range(4):
        grads = {"w": jnp.array([0.5, -2.0, 1e-3]) * (i + 1)}
        expected, plain_state = plain.update(grads, plain_state, params)
        updates, after = optimizer.update(jax.tree.map(lambda g, s=after.scale: g * s, grads), after, params)
        np.testing.assert_allclose(updates["w"], expected["w"], rtol=1e-6)
        scales.append(float(after.scale))
    assert scales == [2**15, 2**15, 2**16, 2**16]


def test_the_scale_moves_as_that_of_flax(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = DynamicScale(growth_interval=3)
    monkeypatch.setattr(loss_scale, "GROW_AFTER", 4)  # Flax grows after one step more than its interval
    optimizer, params = loss_scale.with_loss_scale(optax.sgd(0.1)), {"w": jnp.ones(3)}
    state, scales = optimizer.init(params), []
    for overflow in [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]:
        factor = jnp.inf if overflow else 2.0

        def loss(p: dict, factor: float = factor) -> jax.Array:
            return (p["w"] * factor).sum()

        scale = loss_scale.scale_of(state)
        assert scale is not None and float(scale) == float(theirs.scale)
        scales.append(float(scale))
        theirs, finite, _, gradient = theirs.value_and_grad(loss)(params)
        updates, state = optimizer.update(jax.tree.map(lambda g, s=scale: g * s, jax.grad(loss)(params)), state, params)
        assert bool(finite) != bool(overflow)
        np.testing.assert_allclose(updates["w"], 0 * params["w"] if overflow else -0.1 * gradient["w"], rtol=1e-6)
    assert set(scales) == {2.0**14, 2.0**15, 2.0**16}  # down and up again


def test_overflow_without_end_stops_the_run_with_advice(tmp_path) -> None:
    tokens = random_tokens(300)
    cfg = config_file.get_config()
    cfg.batch_size, cfg.pooling, cfg.dtype, cfg.max_steps, cfg.student.layers = 8, "", "float16", 100, 2
    method = build(cfg, small_start(small_teacher(), tokens))
    layer = method.params["student"]["model"]["layer_0"]
    layer["up"]["kernel"] = layer["up"]["kernel"] * 1e6  # activations beyond 65504
    batches = Batches(tokens.lengths, 8, np.array([24]), 0)

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        ids, mask = tokens.padded(rows, width, 0)
        return {"ids": ids, "mask": mask}

    data = Data(batches, rows_of, "x", "texts")
    with pytest.raises(
        UserError, match=r"stopped at step 40: float16 overflowed in 40 steps .*--config.dtype=bfloat16"
    ):
        train(cfg, method, data, tmp_path / "stage", lambda model: {})
    cfg.max_steps = 6  # a run that ends before that has trained nothing either
    with pytest.raises(UserError, match=r"stopped at step 6: float16 overflowed in 6 steps in a row, .* by 2048 now"):
        train(cfg, method, data, tmp_path / "short", lambda model: {})
    cfg.max_steps, cfg.checkpoint_every = 9, 3  # nor has one that was stopped on its way
    scored: list[int] = []

    def killed(model: object) -> dict[str, float]:
        scored.append(len(scored))
        if len(scored) == 2:
            raise RuntimeError("no power")
        return {}

    with pytest.raises(RuntimeError, match="no power"):
        train(cfg, method, data, tmp_path / "stopped", killed)
    with pytest.raises(UserError, match="stopped at step 9: float16 overflowed in 9 steps in a row"):
        train(cfg, method, data, tmp_path / "stopped", killed)
    cfg.dtype = "float8"
    with pytest.raises(UserError, match="dtype='float8' is not one of auto, float32, bfloat16, float16"):
        make_optimizer(cfg, 10)
