"""The recurrent student's LSTM: cuDNN's call beside our scan, and what the compiler makes of cuDNN's call for a batch that is split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gpu.parts import Cell, Row, Setting
from gpu.timing import gib_of, seconds_in_jax
from jdistill.core import sharding
from jdistill.core.absent import absent_mesh
from jdistill.core.machines import machine_named
from jdistill.models.bilstm import DIRECTIONS, BilstmConfig
from jdistill.models.bilstm import module as bilstm
from jdistill.run.program import read_program
from jdistill.run.program_costs import costs_of

NO_CUDNN = "cuDNN runs on a GPU only, and there is none here"
EIGHT = "h100x8"  # what the split call is compiled for
WAYS = {"cudnn": bilstm._by_cudnn, "scan": bilstm._by_scan}


def _inputs(setting: Setting, batch_size: int) -> tuple[BilstmConfig, tuple[Any, Any, Any]]:
    """The shape, and x [B, L, E], mask [B, L] and weights at random; lengths of 8 to L."""
    c = BilstmConfig(vocab_size=8, embedding_size=setting.pick(300, 12), lstm_size=setting.pick(512, 8), pad_token_id=0)
    rng, tokens = np.random.default_rng(0), setting.pick(32, 12)
    shapes = {
        "input": (c.embedding_size, 4 * c.lstm_size),
        "recurrent": (c.lstm_size, 4 * c.lstm_size),
        "bias": (4 * c.lstm_size,),
    }
    weights = {
        name: {part: rng.uniform(-1, 1, shape).astype(np.float32) * c.lstm_size**-0.5 for part, shape in shapes.items()}
        for name in DIRECTIONS
    }
    x = rng.standard_normal((batch_size, tokens, c.embedding_size), np.float32)
    return c, (x, np.arange(tokens) < rng.integers(8, tokens + 1, batch_size)[:, None], weights)


def _states(c: BilstmConfig, way: str, dtype: str) -> Callable[..., Any]:
    def states(x: Any, mask: Any, weights: Any) -> Any:
        return jnp.where(mask[:, :, None], WAYS[way](c, x, mask, weights, jnp.dtype(dtype)), 0.0)

    return states


def _gradient(c: BilstmConfig, way: str, dtype: str) -> Callable[..., Any]:
    """Of a loss by inputs and weights."""
    states = _states(c, way, dtype)
    return jax.grad(lambda x, mask, weights: jnp.square(states(x, mask, weights)).mean(), argnums=(0, 2))


def timed(setting: Setting, way: str, dtype: str, batch_size: int) -> Row:
    """Milliseconds of the states, and of the gradient with them; of cuDNN how far its states are from the scan's."""
    if way == "cudnn" and jax.default_backend() != "gpu":
        return {"skipped": NO_CUDNN}
    c, arrays = _inputs(setting, batch_size)
    arrays = jax.device_put(arrays)
    states, gradient = (jax.jit(make(c, way, dtype)) for make in (_states, _gradient))
    span = setting.pick(1.0, 0.0)
    row = {
        "states_ms": 1e3 * seconds_in_jax(states, *arrays, span=span),
        "gradient_ms": 1e3 * seconds_in_jax(gradient, *arrays, span=span),
        "gradient_gib": gib_of(gradient.lower(*arrays).compile()),
    }
    row["sentences_per_s"] = 1e3 * batch_size / row["gradient_ms"]
    if way == "cudnn":
        of_scan = jax.jit(_states(c, "scan", dtype))(*arrays)
        row["largest_difference"] = float(jnp.abs(states(*arrays) - of_scan).max())
    return row


def split(setting: Setting, way: str, batch_size: int) -> Row:
    """The gradient compiled for eight GPUs, the batch split: how many rows a device's LSTM reads, and what is gathered for that.

    A device's own share is batch / 8; the whole batch means that the call is not split and its work is done eight times.
    """
    if jax.default_backend() != "gpu":
        return {"skipped": f"{NO_CUDNN} to say what memory it takes" if way == "cudnn" else "only beside cuDNN's"}
    c, arrays = _inputs(setting, batch_size)
    mesh = absent_mesh(machine_named(EIGHT))
    rows, whole = sharding.by_rows(mesh), sharding.replicated(mesh)
    jitted = jax.jit(_gradient(c, way, "float32"), in_shardings=(rows, rows, whole), out_shardings=(rows, whole))
    abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
    text = jitted.trace(*abstract).lower(lowering_platforms=("cuda",)).compile().as_text()
    costs = costs_of(read_program(text), mesh.size)
    calls = [line for line in text.splitlines() if "custom-call(" in line and "rnn" in line.lower()]
    sizes = {int(size) for line in calls for size in re.findall(r"f32\[(\d+),", line)}
    return {
        "on": EIGHT,
        "rows_of_a_call": sorted(sizes & {batch_size, batch_size // mesh.size}),
        "calls": len(calls),
        "exchanged_mb": {kind: round(size / 1e6, 2) for kind, size in costs.collectives.items()},
    }


def cells(setting: Setting) -> Iterator[Cell]:
    """A batch of 1,024, as the method has it, the split call, and a larger batch."""
    ways = (("cudnn", "float32"), ("scan", "float32"), ("scan", "bfloat16"))
    large = setting.pick(1024, 16)
    for way, dtype in ways:
        labels = {"what": "one device", "way": way, "dtype": dtype, "batch": large}
        yield Cell(labels, partial(timed, setting, way, dtype, large))
    for way in WAYS:
        labels = {"what": "split", "way": way, "dtype": "float32", "batch": large}
        yield Cell(labels, partial(split, setting, way, large))
    for way, dtype in setting.pick(ways, ()):
        labels = {"what": "one device", "way": way, "dtype": dtype, "batch": 8 * large}
        yield Cell(labels, partial(timed, setting, way, dtype, 8 * large))
