"""Run by test_sharding.py in processes of their own: gradients of one step, and what the compiled program holds.

Usage: python sharded_gradients.py OUT.npz [COORDINATOR NUM PROCESS_ID]; XLA_FLAGS sets the number of devices.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from jdistill import sharding  # noqa: E402

if len(sys.argv) > 2:
    sharding.connect(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from ibkd_setting import IN_TWO_PROCESSES, SHARDED  # noqa: E402
from ibkd_setting import setting as ibkd_setting  # noqa: E402
from simtde_setting import LOSSES, setting  # noqa: E402

from jdistill.step import init_state, jit_step, make_gradient, make_step  # noqa: E402

BATCH = 64


def main() -> None:
    mesh = sharding.global_mesh()
    whole, rows = sharding.replicated(mesh), sharding.by_rows(mesh)
    share = BATCH // sharding.process_count()
    mine = slice(sharding.process_index() * share, (sharding.process_index() + 1) * share)
    out: dict[str, np.ndarray] = {}
    settings = {name: partial(setting, name) for name in LOSSES}
    settings |= {name: partial(ibkd_setting, name) for name in SHARDED}
    for variant, make in settings.items():
        if len(sys.argv) > 2 and variant not in IN_TWO_PROCESSES:
            continue
        # In chunks too, which must leave each device its own rows.
        chunk_size = 16 if variant == "ibkd_blocks" else 0
        method, batch = make(BATCH, dropout=0.1)
        batch = sharding.shard_rows({name: value[mine] for name, value in batch.items()}, mesh)
        params, frozen = sharding.replicate((method.params, method.frozen), mesh)
        gradient = jax.jit(
            make_gradient(method, 7, True, chunk_size), in_shardings=(whole, whole, rows, whole), out_shardings=whole
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
    # A few whole steps of plain SGD, for processes against one.
    method, batch = setting("", BATCH, dropout=0.1)
    batch = sharding.shard_rows({name: value[mine] for name, value in batch.items()}, mesh)
    optimizer = optax.sgd(0.1)
    state, frozen = init_state(method, optimizer, mesh), sharding.replicate(method.frozen, mesh)
    step = jit_step(make_step(method, optimizer, 7, dropout=True), mesh)
    for _ in range(5):
        state, _ = step(state, frozen, batch)
    for i, leaf in enumerate(jax.tree.leaves(state.params)):
        out[f"sgd/{i}"] = np.asarray(leaf.addressable_data(0))
    if sharding.is_first_process():
        np.savez(sys.argv[1], **out)
    sharding.wait_for_all("end")


if __name__ == "__main__":
    main()
