"""A layer's self-attention with its four projections and gradient: our own, and jax.nn.dot_product_attention by XLA and by cuDNN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from gpu.lstm import NO_CUDNN
from gpu.made_up import make_encoder
from gpu.parts import Cell, Row, Setting
from gpu.timing import gib_of, seconds_in_jax
from jdistill.models.bert.config import BertConfig
from jdistill.models.bert.module import SelfAttention
from jdistill.models.segments import as_bias

OWN, XLA, CUDNN = "own", "xla", "cudnn"


def _own(config: BertConfig, dtype: str, params: Any, x: Any, seen: Any, lengths: Any) -> Any:
    return SelfAttention(config, jnp.dtype(dtype)).apply({"params": params}, x, [as_bias(seen)])


def _by_jax(
    implementation: Literal["xla", "cudnn"],
    config: BertConfig,
    dtype: str,
    params: Any,
    x: Any,
    seen: Any,
    lengths: Any,
) -> Any:
    """lengths: of the texts where each row is one, which cuDNN need not read a mask for; None: `seen` says all."""
    (B, L, D), H = x.shape, config.num_heads

    def dense(name: str, x: Any) -> Any:
        return x @ params[name]["kernel"].astype(dtype) + params[name]["bias"].astype(dtype)

    query, key, value = (dense(name, x).reshape(B, L, H, D // H) for name in ("query", "key", "value"))
    masked: dict[str, Any] = {"mask": seen} if lengths is None else {"key_value_seq_lengths": lengths}
    states = jax.nn.dot_product_attention(query, key, value, implementation=implementation, **masked)
    return dense("out", states.reshape(B, L, D))


WAYS: dict[str, Callable[..., Any]] = {OWN: _own, XLA: partial(_by_jax, "xla"), CUDNN: partial(_by_jax, "cudnn")}


def _inputs(config: BertConfig, rows: int, width: int, texts: int, dtype: str) -> tuple[Any, Any, Any, Any]:
    """x [R, W, D], seen [R, 1, 1 or W, W] and lengths int32 [R] or None: rows of one padded text, or of several texts each."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((rows, width, config.hidden_size), np.float32), dtype)
    if texts == 1:
        lengths = rng.integers(width // 2, width + 1, rows).astype(np.int32)
        return x, jnp.asarray((np.arange(width) < lengths[:, None])[:, None, None]), jnp.asarray(lengths), True
    of = np.sort(rng.integers(0, texts, (rows, width)), axis=1)
    return x, jnp.asarray((of[:, :, None] == of[:, None, :])[:, None]), None, False


def timed(setting: Setting, way: str, dtype: str, rows: int, width: int, texts: int) -> Row:
    """Milliseconds of the layer forward and with its gradient, its memory, and how far it is from our own in float32."""
    if way == CUDNN and jax.default_backend() != "gpu":
        return {"skipped": NO_CUDNN}
    if way == CUDNN and dtype == "float32":
        return {"skipped": "cuDNN's attention takes float16 and bfloat16"}
    config = make_encoder(setting).config
    assert isinstance(config, BertConfig)
    x, seen, lengths, padded = _inputs(config, rows, width, texts, dtype)
    params = SelfAttention(config, jnp.float32).init(jax.random.key(0), x[:1], [as_bias(seen[:1])])["params"]
    run = partial(WAYS[way], config, dtype)
    real = (jnp.arange(width) < lengths[:, None])[:, :, None] if padded else jnp.ones((1, 1, 1), bool)

    def loss(params: Any, x: Any) -> Any:
        return jnp.square(jnp.where(real, run(params, x, seen, lengths), 0).astype(jnp.float32)).mean()

    states, gradient = jax.jit(lambda params, x: run(params, x, seen, lengths)), jax.jit(jax.grad(loss, argnums=(0, 1)))
    span = setting.pick(1.0, 0.0)
    with jax.default_matmul_precision("highest"):  # else a GPU rounds float32 products to TF32
        exact = jax.jit(partial(_own, config, "float32"))(params, x.astype(jnp.float32), seen, lengths)
    return {
        "forward_ms": 1e3 * seconds_in_jax(states, params, x, span=span),
        "gradient_ms": 1e3 * seconds_in_jax(gradient, params, x, span=span),
        "gradient_gib": gib_of(gradient.lower(params, x).compile()),
        "largest_difference": float(jnp.abs(jnp.where(real, states(params, x) - exact, 0)).max()),
    }


def cells(setting: Setting) -> Iterator[Cell]:
    """65,536 tokens, as rows of several packed texts, and as padded texts."""
    shapes = setting.pick(
        ((512, 128, 6), (2048, 32, 1), (512, 128, 1), (1024, 64, 3)),
        ((4, 16, 3), (4, 16, 1)),
    )
    for rows, width, texts in shapes:
        for dtype, way in [("bfloat16", way) for way in (OWN, CUDNN, XLA)] + [("float32", way) for way in (OWN, XLA)]:
            if not setting.toy or way == CUDNN or (dtype == "float32" and way == (OWN if texts == 1 else XLA)):
                labels = {"rows": rows, "width": width, "texts_of_a_row": texts, "dtype": dtype, "way": way}
                yield Cell(labels, partial(timed, setting, way, dtype, rows, width, texts), 5)
