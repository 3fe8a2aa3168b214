"""What an optimiser adds to a step: AdamW, optax's Muon and ours in float32 and bfloat16, in turn, of a student's parameters.

    python bench/optimizers.py [--layers 6] [--width 384] [--inner 384] [--table 24000 160] [--rounds 15]

The default is the shape of configs/search.py's student. One process, parameters and gradients at random, the median of all rounds;
ratios are to AdamW. Adds to bench/results/optimizers.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import jax
import numpy as np
import optax
from ml_collections import ConfigDict
from optax import contrib
from record import command_line, keep_rows

from configs import base
from jdistill.core import sharding
from jdistill.core.types import Tree
from jdistill.train.muon import ADAMW_LENGTH, muon, rule_of_each
from jdistill.train.optimizer import adamw


def student(layers: int, width: int, inner: int, table: tuple[int, int]) -> Tree:
    """Random parameters of an encoder: a table, and of each layer four matrices of attention and two of the feed-forward, with biases."""
    rng = np.random.default_rng(0)

    def dense(rows: int, columns: int) -> Tree:
        return {"kernel": rng.normal(0, 0.05, (rows, columns)), "bias": np.zeros(columns)}

    def layer() -> Tree:
        attention = {name: dense(width, width) for name in ("query", "key", "value", "out")}
        return attention | {"up": dense(width, inner), "down": dense(inner, width)}

    whole = {f"layer_{i}": layer() for i in range(layers)} | {"word": {"embedding": rng.normal(0, 0.02, table)}}
    return jax.tree.map(np.float32, whole)


def optimizers(cfg: ConfigDict) -> dict[tuple[str, str], optax.GradientTransformation]:
    """By name and type of the products."""

    def schedule(step: jax.Array) -> float:
        return cfg.learning_rate

    def matrices(params: Tree) -> Tree:
        return jax.tree.map(
            lambda rule: contrib.MuonDimensionNumbers() if rule == "muon" else None, rule_of_each(params)
        )

    theirs = contrib.muon(
        schedule,
        weight_decay=cfg.weight_decay,
        consistent_rms=ADAMW_LENGTH,
        muon_weight_dimension_numbers=matrices,
    )
    ours = {
        ("muon", dtype): muon(ConfigDict(cfg.to_dict() | {"dtype": dtype}), schedule)
        for dtype in ("float32", "bfloat16")
    }
    return {("adamw", "float32"): adamw(cfg, schedule), ("optax's muon", "float32"): theirs} | ours


def update_of(rule: optax.GradientTransformation) -> Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]:
    """The compiled update: (parameters, state, gradients) to the next parameters and state."""

    def update(params: Tree, state: Tree, gradients: Tree) -> tuple[Tree, Tree]:
        updates, state = rule.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(update, donate_argnums=(0, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--inner", type=int, default=384)
    parser.add_argument("--table", type=int, nargs=2, default=[24000, 160])
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    params = student(flags.layers, flags.width, flags.inner, tuple(flags.table))
    gradients = jax.device_put(jax.tree.map(lambda x: 0.01 * x + 1e-3, params))
    rules = optimizers(base.get_config())
    run = {name: update_of(rule) for name, rule in rules.items()}
    state = {
        name: jax.block_until_ready(run[name](jax.device_put(params), rule.init(params), gradients))
        for name, rule in rules.items()
    }
    seconds: dict[tuple[str, str], list[float]] = {name: [] for name in rules}
    for _ in range(flags.rounds):
        for name, update in run.items():
            at, memory = state[name]
            began = time.perf_counter()
            state[name] = jax.block_until_ready(update(at, memory, gradients))
            seconds[name].append(time.perf_counter() - began)
    first = statistics.median(seconds["adamw", "float32"])
    rows = []
    for (optimizer, dtype), took in seconds.items():
        median = statistics.median(took)
        rows.append({"optimizer": optimizer, "dtype": dtype, "ms": 1000 * median, "to adamw": median / first})
        print(f"{optimizer}, {dtype}: {1000 * median:.0f} ms, {median / first:.1f} times adamw's", flush=True)
    shape = {"layers": flags.layers, "width": flags.width, "inner": flags.inner, "table": list(flags.table)}
    about = {"device": sharding.describe_devices(), "rounds": flags.rounds}
    keep_rows("optimizers", command_line(), rows, ("optimizer", "dtype"), **shape, **about)


if __name__ == "__main__":
    main()
