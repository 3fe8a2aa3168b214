"""The optimiser that a config names: learning-rate schedule, clipping, AdamW."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from jdistill.errors import UserError
from jdistill.loss_scale import with_loss_scale
from jdistill.methods.contract import Tree

DTYPES = ("float32", "bfloat16", "float16")


def make_schedule(cfg: ConfigDict, steps: int) -> optax.Schedule:
    """Linear warm-up over cfg.warmup (a share of the steps), then cosine or linear decay to zero, or constant."""
    warmup = int(round(cfg.warmup * steps))
    decay = {
        "cosine": lambda: optax.cosine_decay_schedule(cfg.learning_rate, max(1, steps - warmup)),
        "linear": lambda: optax.linear_schedule(cfg.learning_rate, 0.0, max(1, steps - warmup)),
        "constant": lambda: optax.constant_schedule(cfg.learning_rate),
    }
    if cfg.schedule not in decay:
        raise UserError(f"--config.schedule={cfg.schedule!r} is not one of {', '.join(decay)}")
    if not warmup:
        return decay[cfg.schedule]()
    return optax.join_schedules(
        [optax.linear_schedule(0.0, cfg.learning_rate, warmup), decay[cfg.schedule]()], [warmup]
    )


def make_optimizer(cfg: ConfigDict, steps: int) -> optax.GradientTransformation:
    """AdamW; biases and LayerNorm parameters do not decay. cfg.clip_norm 0: no clipping. cfg.dtype float16: with loss scaling.

    Raises UserError for a dtype that is not one of DTYPES.
    """
    if cfg.dtype not in DTYPES:
        raise UserError(f"--config.dtype={cfg.dtype!r} is not one of {', '.join(DTYPES)}")

    def decays(params: Tree) -> Tree:
        return jax.tree.map(lambda x: x.ndim > 1, params)

    adamw = optax.adamw(
        make_schedule(cfg, steps),
        b1=cfg.adam_b1,
        b2=cfg.adam_b2,
        eps=cfg.adam_eps,
        weight_decay=cfg.weight_decay,
        mask=decays,
    )
    whole = optax.chain(clip_by_global_norm(cfg.clip_norm), adamw) if cfg.clip_norm else adamw
    return with_loss_scale(whole) if cfg.dtype == "float16" else whole


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Scales the gradient to a norm of at most `limit`. optax's own divides, which XLA's CPU does in a pass of its own."""

    def clip(updates: Tree, state: optax.EmptyState, params: Tree | None = None) -> tuple[Tree, optax.EmptyState]:
        scale = jnp.minimum(1.0, limit / optax.global_norm(updates))
        return jax.tree.map(lambda x: x * scale.astype(x.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)
