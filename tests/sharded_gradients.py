"""Run by test_sharding.py in processes of their own: gradients of one step, and what the compiled program holds.

Usage: python sharded_gradients.py FOLDER, with eight devices set by XLA_FLAGS: writes 1.npz, 2.npz, 4.npz and 8.npz, by so
many of them, and pmap.npz. python sharded_gradients.py FOLDER COORDINATOR NUM PROCESS_ID: writes two.npz, by all processes together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from jdistill.core import sharding  # noqa: E402
from jdistill.core.launchers import connect  # noqa: E402

if len(sys.argv) > 2:
    connect(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from bilstm_setting import setting as bilstm_setting  # noqa: E402
from d2llm_setting import setting as d2llm_setting  # noqa: E402
from distilface_setting import setting as distilface_setting  # noqa: E402
from ibkd_setting import IN_TWO_PROCESSES, of_devices  # noqa: E402
from ibkd_setting import setting as ibkd_setting  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from simtde_setting import LOSSES, packed_setting, setting  # noqa: E402

from jdistill.train.method import Method  # noqa: E402
from jdistill.train.step import (  # noqa: E402
    init_state,
    jit_step,
    make_gradient,
    make_step,
)

BATCH = 64


def built(variant: str) -> tuple[Method, dict[str, np.ndarray], Callable[..., Any]]:
    """The method, its batch, and the gradient: one function, which is traced once for all counts of devices."""
    make = partial(setting if variant in LOSSES else ibkd_setting, variant)
    if variant.startswith("d2llm"):
        make = partial(d2llm_setting, "calibrated")  # all terms, and random negatives too in its asymmetric batch
    if variant in ("bilstm", "own_pairs", "task"):
        make = partial(bilstm_setting, variant)
    if variant == "distilface":  # whose two views of a text lie in one batch
        make = distilface_of
    if variant == "packed":
        make = partial(packed_setting)
    method, batch = make(BATCH, dropout=0.1, **({} if variant == "lmx" else {"student.layers": 1}))
    # In chunks too, which must leave each device its own rows.
    return method, batch, make_gradient(method, 7, True, chunk_size=16 if variant == "ibkd_blocks" else 0)


def distilface_of(rows: int, dropout: float, **changes: object) -> tuple[Method, dict[str, np.ndarray]]:
    return distilface_setting(rows, **{"student.dropout": dropout}, **changes)


def gradients(
    variant: str, method: Method, batch: dict[str, np.ndarray], gradient: Callable[..., Any], mesh: Mesh
) -> dict[str, np.ndarray]:
    """variant/NUMBER: the leaves of the gradient of one step; variant/square: matrices of all pairs in its program."""
    whole, rows = sharding.replicated(mesh), sharding.by_rows(mesh)
    batch = sharding.shard_rows({name: value[mine(len(value))] for name, value in batch.items()}, mesh)
    params, frozen = sharding.replicate((method.params, method.frozen), mesh)
    if variant == "d2llm_spread":  # the base split over the devices
        frozen = sharding.shard_params(method.frozen, mesh)
        table = frozen["base"]["word"]["embedding"]
        assert table.addressable_shards[0].data.size * mesh.size == table.size
    jitted = jax.jit(gradient, in_shardings=(whole, None, rows, whole), out_shardings=whole)
    step = sharding.replicate(np.int32(3), mesh)
    compiled = jitted.lower(params, frozen, batch, step).compile()
    grads, metrics = compiled(params, frozen, batch, step)
    out = {f"{variant}/{i}": np.asarray(leaf.addressable_data(0)) for i, leaf in enumerate(jax.tree.leaves(grads))}
    out[f"{variant}/loss"] = np.asarray(metrics["loss"].addressable_data(0))
    text = compiled.as_text()
    # Matrices of all pairs of texts; a fine-tuning row has four texts, three of them candidates.
    pairs = [(BATCH, BATCH), (4 * BATCH, 4 * BATCH), (BATCH, 3 * BATCH)]
    found = sum(len(re.findall(rf"f32\[{a},{b}\]", text)) for a, b in pairs)
    return out | {f"{variant}/square": np.asarray(found)}


def sgd(mesh: Mesh) -> dict[str, np.ndarray]:
    """sgd/NUMBER: the parameters after five whole steps of plain SGD. The second process comes with others of its own, which must
    not count."""
    method, batch = setting("", BATCH, dropout=0.1)
    method = replace(method, params=jax.tree.map(lambda x: x + 0.1 * sharding.process_index(), method.params))
    batch = sharding.shard_rows({name: value[mine(len(value))] for name, value in batch.items()}, mesh)
    optimizer = optax.sgd(0.1)
    state, frozen = init_state(method, optimizer, mesh), sharding.replicate(method.frozen, mesh)
    step = jit_step(make_step(method, optimizer, 7, dropout=True), mesh)
    for _ in range(5):
        state, _ = step(state, frozen, batch)
    return {f"sgd/{i}": np.asarray(leaf.addressable_data(0)) for i, leaf in enumerate(jax.tree.leaves(state.params))}


def by_pmap() -> dict[str, np.ndarray]:
    """ours: one jitted program's gradient on one device; pmap: the mean of four devices' gradients, each of its own rows."""
    method, batch = setting("no_token", BATCH)
    ours, _ = jax.jit(make_gradient(method, 0, dropout=False))(method.params, method.frozen, batch, jnp.int32(0))

    def shard_gradient(params, shard):
        def loss(p):
            return method.objective(p, method.frozen, method.represent(p, method.frozen, shard, None), shard)[0]

        return jax.lax.pmean(jax.grad(loss)(params), "shards")

    shards = jax.tree.map(lambda x: x.reshape(4, BATCH // 4, *x.shape[1:]), batch)
    pmap = jax.pmap(shard_gradient, axis_name="shards", in_axes=(None, 0), devices=jax.devices()[:4])
    reference = pmap(method.params, shards)
    # As one vector: some leaves, such as the keys' biases, have a gradient of exactly zero and hold only rounding.
    return {
        "ours": np.concatenate([np.ravel(a) for a in jax.tree.leaves(ours)]),
        "pmap": np.concatenate([np.ravel(b[0]) for b in jax.tree.leaves(reference)]),
    }


def mine(rows: int) -> slice:
    """This process's rows of a batch."""
    share = rows // sharding.process_count()
    return slice(sharding.process_index() * share, (sharding.process_index() + 1) * share)


def main() -> None:
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        mesh = sharding.global_mesh()
        assert sharding.agreed({"a": 0.1 + sharding.process_index(), "b": 1e300}) == {"a": 0.1, "b": 1e300}
        found = sgd(mesh)
        for variant in IN_TWO_PROCESSES:
            found |= gradients(variant, *built(variant), mesh)
        if sharding.is_first_process():
            np.savez(out / "two.npz", **found)
        sharding.barrier("end")
        return
    meshes = {count: Mesh(np.asarray(jax.devices()[:count]), (sharding.AXIS,)) for count in (1, 2, 4, 8)}
    of_count = {count: sgd(mesh) if count == 1 else {} for count, mesh in meshes.items()}
    for variant in of_devices(8):
        method, batch, gradient = built(variant)
        for count, mesh in meshes.items():
            if variant in of_devices(count):
                of_count[count] |= gradients(variant, method, batch, gradient, mesh)
    for count, found in of_count.items():
        np.savez(out / f"{count}.npz", **found)
    np.savez(out / "pmap.npz", **by_pmap())


if __name__ == "__main__":
    main()
