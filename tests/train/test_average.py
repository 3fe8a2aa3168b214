"""The average of the parameters: by hand, through a run and its resumption, and what is scored and exported."""

from __future__ import annotations

from pathlib import Path

import commands
import jax
import jax.numpy as jnp
import numpy as np
import optax
from conftest import make_encoder, save_encoder, sentences
from simtde_setting import config, setting

import jdistill
from jdistill.core import sharding
from jdistill.export.trained import load_student
from jdistill.train.average import averaged, with_average
from jdistill.train.checkpoint import Checkpoints
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import host_params, init_state, jit_step, make_step


def test_it_is_the_average_by_hand_and_changes_no_update() -> None:
    plain, with_mean = optax.adam(0.1), with_average(optax.adam(0.1), 0.6)
    params = {"w": jnp.array([1.0, -2.0])}
    mean, other = np.array([1.0, -2.0]), params
    state, plain_state = with_mean.init(params), plain.init(params)
    for t in range(12):
        gradient = {"w": jnp.array([0.5, 1.0]) * (t - 4)}
        updates, state = with_mean.update(gradient, state, params)
        expected, plain_state = plain.update(gradient, plain_state, other)
        np.testing.assert_array_equal(updates["w"], expected["w"])
        params, other = optax.apply_updates(params, updates), optax.apply_updates(other, expected)
        d = min(0.6, (1 + t) / (10 + t))
        mean = d * mean + (1 - d) * np.asarray(params["w"], np.float64)
    np.testing.assert_allclose(averaged(params, state)["w"], mean, rtol=1e-6)
    np.testing.assert_array_equal(averaged(other, plain_state)["w"], other["w"])


def test_it_is_scored_and_found_in_a_checkpoint_also_with_loss_scaling(tmp_path: Path) -> None:
    for dtype in ("float32", "float16"):
        cfg = config("", **{"average": 0.5, "dtype": dtype})
        method, batch = setting("")
        optimizer, mesh = make_optimizer(cfg, 10), sharding.global_mesh()
        state = init_state(method, optimizer, mesh)
        step = jit_step(make_step(method, optimizer, 0, dropout=False), mesh)
        on_mesh, frozen = sharding.shard_rows(batch, mesh), sharding.replicate(method.frozen, mesh)
        expected = jax.tree.map(np.array, method.params)
        for t in range(3):
            state, _ = step(state, frozen, on_mesh)
            d = min(0.5, (1 + t) / (10 + t))
            expected = jax.tree.map(lambda mean, new, d=d: d * mean + (1 - d) * np.asarray(new), expected, state.params)
        for found, mean in zip(jax.tree.leaves(host_params(state)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(found, mean, rtol=1e-5, atol=1e-6)
        checkpoints = Checkpoints(tmp_path / dtype, 1)
        checkpoints.save(3, state._asdict(), {}, None)
        checkpoints.wait()
        _, arrays, _ = checkpoints.restore(None)
        checkpoints.close()
        found = averaged(arrays["params"], arrays["opt_state"])
        jax.tree.map(np.testing.assert_array_equal, found, host_params(state))


def test_a_run_and_a_later_export_have_the_same_student(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(120)) + "\n")
    keys = {
        "teacher": tmp_path / "teacher", "text": tmp_path / "text.txt", "text_column": "", "cache_dir": tmp_path / "cache", "average": 0.9,
        "student.layers": 1, "student.embedding_size": 12, "max_steps": 12, "batch_size": 8, "checkpoint_every": 6, "held_out": 10,
        "learning_rate": 0.01, "latency_texts": 0, "index_texts": 0, "onnx": False,
    }  # fmt: skip
    done = commands.run_inside(commands.command("configs/simtde.py", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-2000:]
    exported, again = jdistill.load(str(tmp_path / "run" / "export")), load_student(tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, again.params, exported.params)


def test_a_stopped_run_goes_on_with_it(tmp_path: Path) -> None:
    from test_calls import run

    whole, last = run(tmp_path / "whole", 1, average=0.8), run(tmp_path / "last", 1)
    assert np.linalg.norm(whole - last) > 1e-4 * np.linalg.norm(last)
    run(tmp_path / "stopped", 1, stop=True, average=0.8)
    np.testing.assert_array_equal(run(tmp_path / "stopped", 1, average=0.8), whole)
