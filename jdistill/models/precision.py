"""The compute type that "auto" stands for: bfloat16 where this machine's products run fast in it, float32 elsewhere."""

from __future__ import annotations

import json
import os
import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core import sharding
from jdistill.core.compile_cache import machine_digest
from jdistill.core.cores import core_count
from jdistill.core.errors import UserError
from jdistill.core.files import default_folder, write_json
from jdistill.core.progress import log
from jdistill.models import host_products
from jdistill.models.matmul import matmul

AUTO, VARIABLE = "auto", "JDISTILL_DTYPE"
COMPUTE_TYPES = ("float32", "bfloat16", "float16")
# A step gains about what its products gain (an EPYC: 1.39 on products, 1.50 and 1.57 on steps; bench/train_step.py).
ENOUGH = 1.2
ROWS, WIDTH, INNER = 2048, 384, 1536  # the largest product of a small model's step, some 64 texts
# A second or two. Five, without warm ones, said 1.16 of a Xeon, and kept it, whose products gain 1.9 and whose steps 1.8.
MEASURED_ROUNDS, WARM_ROUNDS = 25, 5


def settled_dtype(name: str) -> str:
    """A compute type's name: `name` itself, or, where it is "auto", what the variable JDISTILL_DTYPE says or this machine is fast in.

    All processes of a run call it together; the first one's answer counts.

    Raises: UserError where the variable names no type.
    """
    if name != AUTO:
        return name
    chosen = os.environ.get(VARIABLE) or ("bfloat16" if _is_fast() else "float32")
    if chosen not in COMPUTE_TYPES:
        raise UserError(f"{VARIABLE}={chosen} is not one of {', '.join(COMPUTE_TYPES)}")
    return COMPUTE_TYPES[int(sharding.broadcast(np.asarray(COMPUTE_TYPES.index(chosen))))]


def exact_products() -> AbstractContextManager[Any]:
    """Within it float32 is float32 in products too, whose factors an accelerator else rounds: Ampere and later GPUs to TF32's 11 bits, TPUs
    to bfloat16's 8. What is held against another library to float32's rounding is computed so. A CPU rounds nothing, and its programs
    are those that are compiled already."""
    return nullcontext() if jax.default_backend() == "cpu" else jax.default_matmul_precision("highest")


@cache
def _is_fast() -> bool:
    kind = sharding.fast_type_of_device()
    if kind is not None:
        return kind == "bfloat16"
    times = _measured_once()
    log.info("measured once on this machine: bfloat16 runs %.2f times as fast as float32", times)
    return times > ENOUGH


def _measured_once() -> float:
    """How many times as fast as in float32 a product and its gradient run in bfloat16, from the file that keeps it for this machine."""
    path = default_folder() / "measured" / f"{machine_digest()}.json"
    about = {"jax": jax.__version__, "cores": core_count(), "rounds": MEASURED_ROUNDS}
    if (products := host_products.chosen()) != host_products.XLA:
        about["products"] = products
    if (kept := _kept(path, about)) is not None:
        return kept
    times = round(measure_bfloat16(), 3)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, about | {"bfloat16_to_float32": times})
    except (OSError, UserError):
        pass  # a home that cannot be written to: measured anew each time
    return times


def _kept(path: Path, about: dict[str, Any]) -> float | None:
    try:
        content = json.loads(path.read_text())
        times = float(content.pop("bfloat16_to_float32"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return times if content == about and 0 < times < 1e6 else None


def measure_bfloat16(rows: int = ROWS, width: int = WIDTH, inner: int = INNER, rounds: int = MEASURED_ROUNDS) -> float:
    """Float32's time over bfloat16's for the product of an encoder's feed-forward layer with its gradients, the median of several rounds.

    Args:
      rows: tokens of the step.
      width, inner: of the layer.
      rounds: in each both types are timed, one after the other, so that another load meets both.
    """
    with jax.ensure_compile_time_eval():  # it may be asked while a step is traced
        return _measure(rows, width, inner, rounds)


def _measure(rows: int, width: int, inner: int, rounds: int) -> float:
    rng = np.random.default_rng(0)
    x, kernel = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, width), (width, inner)))

    def loss(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.square(matmul(x, kernel).astype(jnp.float32)).sum()

    step = jax.jit(jax.grad(loss, argnums=(0, 1)), compiler_options=sharding.compiler_options(sharding.local_mesh()))
    operands = {name: (jnp.asarray(x, name), jnp.asarray(kernel, name)) for name in ("float32", "bfloat16")}
    for arguments in [*operands.values()] * WARM_ROUNDS:
        jax.block_until_ready(step(*arguments))

    def seconds(name: str) -> float:
        began = time.perf_counter()
        jax.block_until_ready(step(*operands[name]))
        return time.perf_counter() - began

    return statistics.median(seconds("float32") / seconds("bfloat16") for _ in range(rounds))
