"""The training steps of SimTDE and IBKD: sentences a second, share of the card's rate, memory, and what a batch costs the host."""

from __future__ import annotations

import importlib
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from packing import Side, side_of_texts

from gpu.made_up import make_encoder, make_tokens
from gpu.parts import Cell, Row, Setting
from gpu.timing import gib_of, peak_gib, seconds_in_jax
from jdistill import methods
from jdistill.core import sharding
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.layout import Layout

BATCHES = (4096, 65_536, 16_384, 1024, 256)  # the most telling first
LARGE = 8192  # texts; larger batches come in chunks and blocks of rows
PAIR_PRODUCTS = {
    "simtde": 0,
    "ibkd": 3,
}  # matrices of all pairs of a batch, as wide as the student: similarities, two Gram matrices
KINDS = ((True, "float32"), (False, "bfloat16"), (False, "float32"))  # packed, type: of others()
BATCHES_MADE = 5  # of each shape, of which the host's time is the median
LOOKED_AT = 32  # batches of an epoch whose shapes count
# Of a rehearsal's student.
SMALL = {"simtde": {"student.embedding_size": 8, "student.layers": 1}, "ibkd": {"student.layers": 1}}


def configured(setting: Setting, name: str, batch_size: int, dtype: str) -> ConfigDict:
    """configs/NAME.py for such a batch: in chunks and blocks where it is large, widths as they suit a GPU."""
    cfg = importlib.import_module(f"configs.{name}").get_config()
    large = setting.pick(LARGE, 16)
    cfg.update({"batch_size": batch_size, "dtype": dtype, "length_multiple": 8, "length_buckets": setting.pick(4, 2)})
    cfg.update({"chunk_size": large if batch_size > large else 0})
    cfg.update({"block_size": setting.pick(2048, 8) if batch_size > large and PAIR_PRODUCTS[name] else 0})
    cfg.student.start = "random"  # a compact block's SVD takes longer than all steps, which are as fast without
    if setting.toy:
        cfg.update_from_flattened_dict(SMALL[name])
    return cfg


def step_row(setting: Setting, name: str, batch_size: int, dtype: str, packed: bool) -> Row:
    """A method's step: of each shape that its batches have, over and over on one batch, weighted by how often it comes."""
    cfg = configured(setting, name, batch_size, dtype)
    start = make_encoder(setting)
    # Padded batches have several widths, so that an epoch must have several batches.
    texts = max(batch_size * (1 if packed else 4), setting.pick(65_536, 64))
    tokens = make_tokens(texts, start.config.vocab_size)
    stage = methods.METHODS[cfg.method](cfg)[0]
    side = side_of_texts(stage, start, tokens, packed)
    shapes = _shapes(side)
    seconds = gib = compiling = host = flops = 0.0
    for number, share in shapes.values():
        batch, taken = _batch_and_seconds(side, number)
        host += share * taken
        began = time.perf_counter()
        compiled = side.step.lower(side.state, side.frozen, batch).compile()
        compiling += time.perf_counter() - began
        seconds += share * _seconds_a_step(side, compiled, batch, setting.pick(1.0, 0.0))
        gib = max(gib, gib_of(compiled))
        rows = side.data.batches.at(number)[1]
        flops += share * flops_of_step(side.state.params["student"]["model"], start, tokens, rows, batch_size, name)
    return {
        "sentences_per_s": batch_size / seconds,
        "step_ms": 1e3 * seconds,
        "tflop_per_s": 1e-12 * flops / seconds,
        "program_gib": gib,
        "peak_gib_so_far": peak_gib(),
        "batch_on_host_ms": 1e3 * host,
        "compiling_s": round(compiling, 1),
        "padding_percent": round(100 * side.data.batches.padding, 2),
        "shapes": len(shapes),
        "chunk_size": cfg.chunk_size,
        "block_size": cfg.block_size,
    }


def _batch_and_seconds(side: Side, number: int) -> tuple[Any, float]:
    """A batch on the devices, and what it costs to make and bring there: the median of several times after a first one."""
    taken: list[float] = []
    for _ in range(1 + BATCHES_MADE):
        began = time.perf_counter()
        batch = jax.block_until_ready(sharding.shard_rows(side.data.batch(number), side.mesh))
        taken.append(time.perf_counter() - began)
    return batch, statistics.median(taken[1:])


def _shapes(side: Side) -> dict[int | Layout, tuple[int, float]]:
    """Each shape of the first batches: the number of a batch that has it, and its share of them."""
    batches = side.data.batches
    looked_at = [batches.at(number)[0] for number in range(min(batches.steps_per_epoch, LOOKED_AT))]
    return {shape: (looked_at.index(shape), count / len(looked_at)) for shape, count in Counter(looked_at).items()}


def _seconds_a_step(side: Side, compiled: Any, batch: Any, span: float) -> float:
    """Of the same batch again and again; the state goes on."""

    def step() -> Any:
        side.state, metrics = compiled(side.state, side.frozen, batch)
        return metrics

    return seconds_in_jax(step, span=span)


def flops_of_step(params: Any, start: Any, tokens: TokenTable, rows: np.ndarray, batch_size: int, name: str) -> float:
    """Floating-point operations that a step must do, its padding and what chunks compute twice left out.

    A product's backward pass is two products of its size. Counted are the layers' kernels, attention's two products and the
    matrices of all pairs.

    Args:
      params: the student's.
      start: the encoder that it starts as, whose width it keeps.
      tokens: of all texts.
      rows: texts of a batch, int64 [batch_size].
    """
    flat = flatten_dict(params, sep="/")
    kernels = sum(x.size for path, x in flat.items() if path.endswith("kernel"))
    layers = len({path.split("/")[0] for path in flat if path.startswith("layer_")})
    lengths, width = tokens.lengths[rows].astype(np.float64), start.config.hidden_size
    of_texts = (kernels * lengths + 2 * layers * width * lengths**2).sum()
    return float(6 * (of_texts + PAIR_PRODUCTS[name] * width * batch_size**2))


def _cells(setting: Setting, name: str, kinds: list[tuple[int, str, bool]]) -> Iterator[Cell]:
    for batch_size, dtype, packed in kinds:
        labels = {"method": name, "batch": batch_size, "dtype": dtype, "packed": packed}
        seconds = (15.0 if batch_size <= LARGE else 25.0) * (1 if packed else 2)
        yield Cell(labels, partial(step_row, setting, name, batch_size, dtype, packed), seconds)


def simtde(setting: Setting) -> Iterator[Cell]:
    """SimTDE's step as a GPU is to run it."""
    return _cells(setting, "simtde", [(size, "bfloat16", True) for size in setting.pick(BATCHES, (32,))])


def ibkd(setting: Setting) -> Iterator[Cell]:
    """IBKD's, whose loss compares all pairs of a batch."""
    return _cells(setting, "ibkd", [(size, "bfloat16", True) for size in setting.pick(BATCHES, (32,))])


def others(setting: Setting) -> Iterator[Cell]:
    """Both in float32 and padded, the sizes that tell most first."""
    few, many = setting.pick(((4096, 256), (65_536, 1024, 16_384)), ((8,), ()))
    for sizes in (few, many):
        for packed, dtype in setting.pick(KINDS, KINDS[-1:]):
            for name in setting.pick(PAIR_PRODUCTS, ("simtde",)):
                yield from _cells(setting, name, [(size, dtype, packed) for size in sizes])
