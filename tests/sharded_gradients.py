"""Run by test_sharding.py in processes of their own: gradients of one step, and what the compiled program holds.

Usage: python sharded_gradients.py FOLDER, with eight devices set by XLA_FLAGS: writes 1.npz, 2.npz, 4.npz and 8.npz, by so
many of them. python sharded_gradients.py FOLDER COORDINATOR NUM PROCESS_ID: writes two.npz, by all processes together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from jdistill.core import sharding  # noqa: E402

if len(sys.argv) > 2:
    sharding.connect(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from bilstm_setting import setting as bilstm_setting  # noqa: E402
from d2llm_setting import setting as d2llm_setting  # noqa: E402
from ibkd_setting import IN_TWO_PROCESSES, of_devices  # noqa: E402
from ibkd_setting import setting as ibkd_setting  # noqa: E402
from jax.sharding import Mesh  # noqa: E402
from simtde_setting import LOSSES, setting  # noqa: E402

from jdistill.train.step import (  # noqa: E402
    init_state,
    jit_step,
    make_gradient,
    make_step,
)

BATCH = 64


def gradients(mesh: Mesh, variants: Iterable[str]) -> dict[str, np.ndarray]:
    """variant/NUMBER: the leaves of the gradient of one step; variant/square: matrices of all pairs in its program."""
    whole, rows = sharding.replicated(mesh), sharding.by_rows(mesh)
    out: dict[str, np.ndarray] = {}
    for variant in variants:
        make = partial(setting if variant in LOSSES else ibkd_setting, variant)
        if variant.startswith("d2llm"):
            make = partial(d2llm_setting, "calibrated")  # all terms, and random negatives too in its asymmetric batch
        if variant in ("bilstm", "task"):
            make = partial(bilstm_setting, variant)
        # In chunks too, which must leave each device its own rows.
        chunk_size = 16 if variant == "ibkd_blocks" else 0
        method, batch = make(BATCH, dropout=0.1, **({} if variant == "lmx" else {"student.layers": 1}))
        batch = sharding.shard_rows({name: value[mine()] for name, value in batch.items()}, mesh)
        params, frozen = sharding.replicate((method.params, method.frozen), mesh)
        if variant == "d2llm_spread":  # the base split over the devices
            frozen = sharding.spread(method.frozen, mesh)
            table = frozen["base"]["word"]["embedding"]
            assert table.addressable_shards[0].data.size * mesh.size == table.size
        gradient = jax.jit(
            make_gradient(method, 7, True, chunk_size), in_shardings=(whole, None, rows, whole), out_shardings=whole
        )
        step = sharding.replicate(np.int32(3), mesh)
        compiled = gradient.lower(params, frozen, batch, step).compile()
        grads, metrics = compiled(params, frozen, batch, step)
        for i, leaf in enumerate(jax.tree.leaves(grads)):
            out[f"{variant}/{i}"] = np.asarray(leaf.addressable_data(0))
        out[f"{variant}/loss"] = np.asarray(metrics["loss"].addressable_data(0))
        text = compiled.as_text()
        # Matrices of all pairs of texts; a fine-tuning row has four texts, three of them candidates.
        pairs = [(BATCH, BATCH), (4 * BATCH, 4 * BATCH), (BATCH, 3 * BATCH)]
        found = sum(len(re.findall(rf"f32\[{a},{b}\]", text)) for a, b in pairs)
        out[f"{variant}/square"] = np.asarray(found)
    return out


def sgd(mesh: Mesh) -> dict[str, np.ndarray]:
    """sgd/NUMBER: the parameters after five whole steps of plain SGD. The second process comes with others of its own, which must
    not count."""
    method, batch = setting("", BATCH, dropout=0.1)
    method = replace(method, params=jax.tree.map(lambda x: x + 0.1 * sharding.process_index(), method.params))
    batch = sharding.shard_rows({name: value[mine()] for name, value in batch.items()}, mesh)
    optimizer = optax.sgd(0.1)
    state, frozen = init_state(method, optimizer, mesh), sharding.replicate(method.frozen, mesh)
    step = jit_step(make_step(method, optimizer, 7, dropout=True), mesh)
    for _ in range(5):
        state, _ = step(state, frozen, batch)
    return {f"sgd/{i}": np.asarray(leaf.addressable_data(0)) for i, leaf in enumerate(jax.tree.leaves(state.params))}


def mine() -> slice:
    """This process's rows of the batch."""
    share = BATCH // sharding.process_count()
    return slice(sharding.process_index() * share, (sharding.process_index() + 1) * share)


def main() -> None:
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        mesh = sharding.global_mesh()
        found = gradients(mesh, IN_TWO_PROCESSES) | sgd(mesh)
        if sharding.is_first_process():
            np.savez(out / "two.npz", **found)
        sharding.wait_for_all("end")
        return
    for count in (1, 2, 4, 8):
        mesh = Mesh(np.asarray(jax.devices()[:count]), (sharding.AXIS,))
        found = gradients(mesh, of_devices(count)) | (sgd(mesh) if count == 1 else {})
        np.savez(out / f"{count}.npz", **found)


if __name__ == "__main__":
    main()
