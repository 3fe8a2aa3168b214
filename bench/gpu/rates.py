"""What the card can do at most: matrix products by type, the step's own narrow product, and a copy in its memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import metadata

import jax
import jax.numpy as jnp

from gpu.parts import Cell, Row, Setting
from gpu.timing import seconds_in_jax

LIBRARIES = ("jax", "jaxlib", "jax-cuda13-plugin", "flax", "optax", "numpy", "torch", "transformers", "sentence-transformers")  # fmt: skip


def device() -> Row:
    """The device's name and kind, and the libraries' versions."""
    device = jax.local_devices()[0]
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {"device": device.device_kind, "platform": device.platform} | versions


def product(rows: int, inner: int, columns: int, dtype: str, precision: str | None, span: float) -> Row:
    """[rows, inner] x [inner, columns] of random numbers, since zeros run faster."""
    a, b = (
        jax.random.normal(jax.random.key(seed), shape).astype(dtype)
        for seed, shape in enumerate(((rows, inner), (inner, columns)))
    )
    seconds = seconds_in_jax(jax.jit(partial(jnp.matmul, precision=precision)), a, b, span=span)
    return {"ms": 1e3 * seconds, "tflop_per_s": 2e-12 * rows * inner * columns / seconds}


def copy(count: int, span: float) -> Row:
    """One float32 a number read and one written."""
    numbers = jax.random.normal(jax.random.key(0), (count,))
    seconds = seconds_in_jax(jax.jit(lambda x: x + 1.0), numbers, span=span)
    return {"ms": 1e3 * seconds, "gb_per_s": 8e-9 * count / seconds}


def cells(setting: Setting) -> Iterator[Cell]:
    """Of both types the large product and that of an up-projection of 65,536 tokens."""
    n, tokens = setting.pick(8192, 256), setting.pick(65_536, 256)
    span = setting.pick(1.0, 0.0)
    yield Cell({"what": "device"}, device)
    for dtype, precision in (("bfloat16", None), ("float32", None), ("float32", "highest")):
        labels = {"dtype": dtype, "precision": precision or "default"}
        yield Cell({"what": f"product {n} x {n} x {n}"} | labels, partial(product, n, n, n, dtype, precision, span))
    for dtype in ("bfloat16", "float32"):
        labels = {"what": f"product {tokens} x 384 x 1536", "dtype": dtype, "precision": "default"}
        yield Cell(labels, partial(product, tokens, 384, 1536, dtype, None, span))
    yield Cell({"what": "copy"}, partial(copy, setting.pick(2**28, 2**16), span))
