"""Run by test_sharded_state.py in processes of their own: steps whose parameters and optimiser are split over the devices.

Usage: python sharded_state.py FOLDER [COORDINATOR NUM PROCESS_ID], with devices set by XLA_FLAGS: trains split over all devices, keeps
a checkpoint in FOLDER/split and writes FOLDER/split.npz. A single process writes FOLDER/whole.npz too, by one device that holds all,
FOLDER/COUNT.npz, the checkpoint's state restored on so many devices, and both states with Muon, FOLDER/muon-split.npz and -whole.npz.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from jdistill.core import sharding  # noqa: E402
from jdistill.core.launchers import connect  # noqa: E402

if len(sys.argv) > 2:
    connect(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

import jax  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from ibkd_setting import config, setting  # noqa: E402
from jax.sharding import Mesh  # noqa: E402

from jdistill.train.checkpoint import Checkpoints  # noqa: E402
from jdistill.train.optimizer import muon  # noqa: E402
from jdistill.train.step import TrainState, init_state, jit_step, make_step, state_layout  # noqa: E402

BATCH, STEPS = 64, 5
# Far above a gradient that is rounding alone, as that of the keys' biases is: AdamW would make a whole step of it.
OPTIMIZER = optax.adamw(1e-2, eps=1e-4)
MUON = muon(config("", adam_eps=1e-4, weight_decay=0.0), optax.constant_schedule(1e-2))


def trained(mesh: Mesh, split: bool, optimizer: optax.GradientTransformation = OPTIMIZER) -> TrainState:
    method, batch = setting("ibkd", BATCH, dropout=0.1, **{"student.layers": 1})
    share = BATCH // sharding.process_count()
    mine = slice(sharding.process_index() * share, (sharding.process_index() + 1) * share)
    rows = sharding.shard_rows({name: value[mine] for name, value in batch.items()}, mesh)
    state, frozen = init_state(method, optimizer, mesh, split), sharding.replicate(method.frozen, mesh)
    step = jit_step(make_step(method, optimizer, 7, dropout=True, over=mesh if split else None), mesh, state)
    for _ in range(STEPS):
        state, _ = step(state, frozen, rows)
    if split:
        check_split(state, mesh)
    return state


def check_split(state: TrainState, mesh: Mesh) -> None:
    """All that the devices can divide lies in parts, the optimiser's means too, also after steps."""
    of_model = [x for x in jax.tree.leaves((state.params, state.opt_state)) if any(n % mesh.size == 0 for n in x.shape)]
    assert len(of_model) > 20
    for x in of_model:
        assert x.addressable_shards[0].data.size * mesh.size == x.size, (x.shape, x.sharding)


def save(path: Path, state: TrainState) -> None:
    leaves = [sharding.to_host(leaf) for leaf in jax.tree.leaves(state)]
    if sharding.is_first_process():
        np.savez(path, **{f"{i:03d}": leaf for i, leaf in enumerate(leaves)})


def main() -> None:
    out, mesh = Path(sys.argv[1]), sharding.global_mesh()
    state = trained(mesh, split=True)
    save(out / "split.npz", state)
    checkpoints = Checkpoints(out / "split", 2)
    checkpoints.save(STEPS, state._asdict(), {"about": "it"}, 0.5)
    checkpoints.wait()
    if sharding.process_count() == 1:
        save(out / "whole.npz", trained(sharding.mesh_of(jax.devices()[:1]), split=False))
        save(out / "muon-split.npz", trained(mesh, split=True, optimizer=MUON))
        save(out / "muon-whole.npz", trained(sharding.mesh_of(jax.devices()[:1]), split=False, optimizer=MUON))
        method, _ = setting("ibkd", BATCH, dropout=0.1, **{"student.layers": 1})
        for count in (1, 2, 8):
            fewer = sharding.mesh_of(jax.devices()[:count])
            like = state_layout(method, OPTIMIZER, fewer, split=count > 1)
            _, arrays, _ = checkpoints.restore(like._asdict())
            restored = TrainState(**arrays)
            if count > 1:
                check_split(restored, fewer)
            save(out / f"{count}.npz", restored)
    checkpoints.close()
    sharding.barrier("end")


if __name__ == "__main__":
    main()
