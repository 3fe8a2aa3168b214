"""Muon by hand: matrices that map move by the orthogonal factor of their gradients' mean, all else as AdamW has it."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib
from simtde_setting import config, setting
from test_calls import run

from jdistill.core import sharding
from jdistill.core.types import Tree
from jdistill.train.muon import ADAMW_LENGTH, muon, orthogonal_factor, rule_of_each
from jdistill.train.optimizer import make_optimizer, make_schedule
from jdistill.train.step import init_state, jit_step, make_step

STEPS, MOMENTUM = 6, 0.95
QUINTIC = (3.4445, -4.775, 2.0315)


def factor_by_hand(gradient: np.ndarray) -> np.ndarray:
    """Newton and Schulz's iteration as Jordan has it, five times, in float64."""
    a, b, c = QUINTIC
    x = gradient / np.linalg.norm(gradient)
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def params() -> dict:
    rng = np.random.default_rng(3)
    return {
        "layer": {"kernel": rng.normal(size=(12, 20)), "bias": rng.normal(size=20)},
        "word": {"embedding": rng.normal(size=(30, 12))},
    }


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_matrix_moves_as_by_hand(decay: float) -> None:
    cfg = config("", optimizer="muon", weight_decay=decay, clip_norm=0.0, learning_rate=0.01)
    optimizer, schedule = make_optimizer(cfg, STEPS), make_schedule(cfg, STEPS)
    found = jax.tree.map(jnp.float32, params())
    state, rng = optimizer.init(found), np.random.default_rng(4)
    by_hand, mean = params()["layer"]["kernel"], 0.0
    for t in range(STEPS):
        gradients = jax.tree.map(lambda x: rng.normal(size=x.shape), params())
        updates, state = optimizer.update(jax.tree.map(jnp.float32, gradients), state, found)
        found = optax.apply_updates(found, updates)
        g = gradients["layer"]["kernel"]
        mean = MOMENTUM * mean + (1 - MOMENTUM) * g
        ahead = MOMENTUM * mean / (1 - MOMENTUM ** (t + 2)) + (1 - MOMENTUM) * g / (1 - MOMENTUM ** (t + 1))
        rate = 0.01 * float(schedule(t))
        by_hand = by_hand - rate * (ADAMW_LENGTH * np.sqrt(20) * factor_by_hand(ahead) + decay * by_hand)
    assert np.abs(by_hand - params()["layer"]["kernel"]).max() > 1e-3
    # Five quintics let a rounding grow by at most 3.4445^5 = 485, of moves that are together 0.06 long.
    np.testing.assert_allclose(found["layer"]["kernel"], by_hand, atol=485 * 6e-8 * 0.06 + 1e-6)


def test_its_moves_turn_into_no_direction_more_than_into_another() -> None:
    """Of a gradient whose directions differ a thousandfold."""
    left, right = (np.linalg.qr(np.random.default_rng(i).normal(size=(16, 16)))[0] for i in (5, 6))
    gradient = {"kernel": jnp.float32(left * np.geomspace(1.0, 1e-3, 16) @ right)}
    spread = {}
    for name in ("adamw", "muon"):
        optimizer = make_optimizer(config("", optimizer=name, weight_decay=0.0, warmup=0.0, clip_norm=0.0), STEPS)
        updates, _ = optimizer.update(gradient, optimizer.init(gradient), gradient)
        values = np.linalg.svd(np.asarray(updates["kernel"]), compute_uv=False)
        spread[name] = values[0] / values[13]  # the last two are rounding alone in AdamW's
    assert spread["muon"] < 2 < 10 < spread["adamw"]


@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (64, 64)])
def test_bfloat16_finds_the_factor_as_well_as_float32(shape: tuple[int, int]) -> None:
    """Jordan's five iterations leave singular values between 0.7 and 1.2; 2^-8, bfloat16's rounding, changes little of that."""
    rng = np.random.default_rng(7)
    left, _, right = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    values = np.geomspace(1.0, 1e-2, min(shape))
    exact = left @ right
    near = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        factor = orthogonal_factor(jnp.float32(left * values @ right), dtype, 1e-8)
        assert factor.dtype == jnp.float32 and factor.shape == shape
        spread = np.linalg.svd(np.asarray(factor), compute_uv=False)
        assert spread.min() > 0.6 and spread.max() < 1.3
        near[dtype] = float((np.asarray(factor) * exact).sum() / np.linalg.norm(factor) / np.linalg.norm(exact))
    assert near[jnp.bfloat16] > near[jnp.float32] - 0.01


@pytest.mark.parametrize("began", ["whole", "half"])
def test_it_is_optaxs_and_goes_on_from_a_state_of_it(began: str) -> None:
    """Whose Muon made the runs that are there."""
    cfg = config("", optimizer="muon", weight_decay=0.1, clip_norm=0.0, learning_rate=0.01)
    schedule = make_schedule(cfg, STEPS)

    def mapping(tree: Tree) -> Tree:
        return {
            "word": {"embedding": None},
            "layer": {"kernel": contrib.MuonDimensionNumbers(), "bias": None},
        }

    theirs = contrib.muon(
        schedule, weight_decay=0.1, eps=cfg.adam_eps, consistent_rms=0.2, muon_weight_dimension_numbers=mapping
    )
    ours = muon(cfg, schedule)
    found = expected = jax.tree.map(jnp.float32, params())
    state, of_theirs, rng = ours.init(found), theirs.init(expected), np.random.default_rng(4)
    assert jax.tree.structure(state) == jax.tree.structure(of_theirs)
    for t in range(STEPS):
        if began == "half" and t == STEPS // 2:
            found, state = expected, of_theirs
        gradients = jax.tree.map(lambda x: jnp.float32(rng.normal(size=x.shape)), params())
        updates, state = ours.update(gradients, state, found)
        found = optax.apply_updates(found, updates)
        updates, of_theirs = theirs.update(gradients, of_theirs, expected)
        expected = optax.apply_updates(expected, updates)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=485 * 6e-8 * 6 + 1e-6)  # as above, of six moves by the whole schedule


def test_tables_and_biases_move_as_adamw_has_it() -> None:
    """With its own look ahead (Nesterov), and without decay."""
    cfg = config("", optimizer="muon", weight_decay=0.1, warmup=0.0, clip_norm=0.0, learning_rate=0.01)
    optimizer = make_optimizer(cfg, STEPS)
    adamw = optax.adamw(lambda t: 0.01 * make_schedule(cfg, STEPS)(t), weight_decay=0.0, nesterov=True)
    found = expected = jax.tree.map(jnp.float32, params())
    state, of_adamw, rng = optimizer.init(found), adamw.init(expected), np.random.default_rng(4)
    for _ in range(STEPS):
        gradients = jax.tree.map(lambda x: jnp.float32(rng.normal(size=x.shape)), params())
        updates, state = optimizer.update(gradients, state, found)
        found = optax.apply_updates(found, updates)
        updates, of_adamw = adamw.update(gradients, of_adamw, expected)
        expected = optax.apply_updates(expected, updates)
    for path in (("word", "embedding"), ("layer", "bias")):
        np.testing.assert_allclose(found[path[0]][path[1]], expected[path[0]][path[1]], rtol=1e-6, atol=1e-6)


def test_parameters_in_lists_and_tuples_are_taken_too() -> None:
    assert rule_of_each({"heads": [jnp.ones((2, 3)), jnp.ones(3)]}) == {"heads": ["muon", "adam"]}


def test_a_student_learns_with_it() -> None:
    cfg = config("thin", optimizer="muon", learning_rate=0.01)
    method, batch = setting("thin")
    optimizer, mesh = make_optimizer(cfg, 40), sharding.global_mesh()
    state = init_state(method, optimizer, mesh)
    step = jit_step(make_step(method, optimizer, 0, dropout=False), mesh)
    rows, frozen = sharding.shard_rows(batch, mesh), sharding.replicate(method.frozen, mesh)
    losses = []
    for _ in range(40):
        state, metrics = step(state, frozen, rows)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.6 * losses[0]


def test_a_stopped_run_goes_on_with_it(tmp_path: Path) -> None:
    whole, other = run(tmp_path / "whole", 1, optimizer="muon"), run(tmp_path / "other", 1)
    assert np.linalg.norm(whole - other) > 1e-4 * np.linalg.norm(other)
    run(tmp_path / "stopped", 1, stop=True, optimizer="muon")
    np.testing.assert_array_equal(run(tmp_path / "stopped", 1, optimizer="muon"), whole)
