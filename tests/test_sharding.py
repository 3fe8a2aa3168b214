"""The same numbers on one device as on many: raw gradients, a literal pmap reference, two real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import HANG, free_port
from ibkd_setting import IN_TWO_PROCESSES, of_devices
from simtde_setting import setting

from jdistill.train.step import make_gradient

SCRIPT = Path(__file__).with_name("sharded_gradients.py")


def with_devices(count: int) -> str:
    return f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"


def start(folder: Path, devices: int, *process: str) -> subprocess.Popen:
    env = os.environ | {"XLA_FLAGS": with_devices(devices), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), *process], env=env, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0, errors[-3000:]


@pytest.fixture(scope="module")
def gradients(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("gradients")
    finish(start(folder, 8))
    return {devices: dict(np.load(folder / f"{devices}.npz")) for devices in (1, 2, 4, 8)}


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_raw_gradients_do_not_depend_on_the_devices(gradients: dict, devices: int) -> None:
    for variant in of_devices(devices):
        names = [n for n in gradients[1] if n.startswith(f"{variant}/") and n.split("/")[1].isdigit()]
        one, many = (np.concatenate([found[n].ravel() for n in names]) for found in (gradients[1], gradients[devices]))
        assert np.linalg.norm(one) > 0
        assert relative(many, one) < 1e-5, variant
        assert relative(gradients[devices][f"{variant}/loss"], gradients[1][f"{variant}/loss"]) < 1e-5


@pytest.mark.parametrize("variant", ["pair_mse", "ibkd", "crd", "finetune"])
def test_no_device_holds_a_whole_matrix_of_pairs(gradients: dict, variant: str) -> None:
    assert gradients[1][f"{variant}/square"] > 0  # the pattern does find it where it must be
    assert gradients[8][f"{variant}/square"] == 0


def test_two_processes_equal_one(gradients: dict, tmp_path: Path) -> None:
    port = free_port()
    pair = [start(tmp_path, 1, f"127.0.0.1:{port}", "2", str(i)) for i in range(2)]
    for process in pair:
        finish(process)
    two = dict(np.load(tmp_path / "two.npz"))
    for variant in [*IN_TWO_PROCESSES, "sgd"]:
        names = [n for n in two if n.startswith(f"{variant}/") and n.split("/")[1].isdigit()]
        one, both = (np.concatenate([found[n].ravel() for n in names]) for found in (gradients[1], two))
        assert relative(both, one) < 1e-5, variant


def test_the_step_equals_a_literal_pmap_of_the_loss_with_pmean() -> None:
    """For a loss that is a mean over texts, pmap over shards with pmean'd gradients is the textbook data-parallel step."""
    if jax.device_count() < 4:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            f"{__file__}::test_the_step_equals_a_literal_pmap_of_the_loss_with_pmean",
        ]
        env = os.environ | {"XLA_FLAGS": with_devices(4), "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-3000:]
        return
    method, batch = setting("no_token", 64)
    ours, _ = jax.jit(make_gradient(method, 0, dropout=False))(method.params, method.frozen, batch, jnp.int32(0))

    def shard_gradient(params, shard):
        def loss(p):
            return method.objective(p, method.frozen, method.represent(p, method.frozen, shard, None), shard)[0]

        return jax.lax.pmean(jax.grad(loss)(params), "shards")

    shards = jax.tree.map(lambda x: x.reshape(4, 16, *x.shape[1:]), batch)
    reference = jax.pmap(shard_gradient, axis_name="shards", in_axes=(None, 0))(method.params, shards)
    # As one vector: some leaves, such as the keys' biases, have a gradient of exactly zero and hold only rounding.
    ours_flat = np.concatenate([np.ravel(a) for a in jax.tree.leaves(ours)])
    reference_flat = np.concatenate([np.ravel(b[0]) for b in jax.tree.leaves(reference)])
    assert relative(ours_flat, reference_flat) < 1e-5
