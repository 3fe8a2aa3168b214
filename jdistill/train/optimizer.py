"""The optimiser that a config names: learning-rate schedule, clipping, AdamW or Muon."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Tree
from jdistill.models.precision import AUTO, COMPUTE_TYPES
from jdistill.train.average import with_average
from jdistill.train.loss_scale import with_loss_scale
from jdistill.train.muon import muon

SCHEDULES = ("cosine", "linear", "constant")
OPTIMIZERS = ("adamw", "muon")


class PeakState(NamedTuple):
    """The state of scale_by_peak: a part of the state, not of the compiled step, which runs of other rates share.

    Args:
      peak: the highest learning rate, float32 scalar.
    """

    peak: jax.Array


def make_schedule(cfg: ConfigDict, steps: int) -> optax.Schedule:
    """The share of cfg.learning_rate at each step, 0 to 1: linear warm-up, then cosine or linear decay to zero, or constant.

    Args:
      cfg: of which schedule and warmup, a share of the steps, are read.
      steps: of the stage.

    Raises: UserError for another schedule.
    """
    warmup = int(round(cfg.warmup * steps))
    decay = {
        "cosine": lambda: optax.cosine_decay_schedule(1.0, max(1, steps - warmup)),
        "linear": lambda: optax.linear_schedule(1.0, 0.0, max(1, steps - warmup)),
        "constant": lambda: optax.constant_schedule(1.0),
    }
    if cfg.schedule not in SCHEDULES:
        raise UserError(f"--config.schedule={cfg.schedule!r} is not one of {', '.join(SCHEDULES)}")
    if not warmup:
        return decay[cfg.schedule]()
    return optax.join_schedules([optax.linear_schedule(0.0, 1.0, warmup), decay[cfg.schedule]()], [warmup])


def make_optimizer(cfg: ConfigDict, steps: int) -> optax.GradientTransformation:
    """AdamW or Muon; biases and LayerNorm parameters do not decay. With an average of the parameters where cfg.average says so, and with
    loss scaling where cfg.dtype is float16 and no loss_scaling=False of the method's says otherwise.

    Args:
      cfg: optimizer, learning_rate, adam_b1, adam_b2, adam_eps, weight_decay, clip_norm (0: no clipping), average (0: none), dtype, and
        make_schedule's keys.
      steps: of the stage.

    Raises: UserError for a dtype that there is not, and as make_schedule.
    """
    if cfg.dtype not in (AUTO, *COMPUTE_TYPES):
        raise UserError(f"--config.dtype={cfg.dtype!r} is not one of {', '.join((AUTO, *COMPUTE_TYPES))}")

    rule = (muon if cfg.optimizer == "muon" else adamw)(cfg, make_schedule(cfg, steps))
    rule = optax.chain(rule, scale_by_peak(cfg.learning_rate))
    whole = optax.chain(clip_by_global_norm(cfg.clip_norm), rule) if cfg.clip_norm else rule
    whole = with_average(whole, cfg.average) if cfg.average else whole
    return with_loss_scale(whole) if cfg.dtype == "float16" and cfg.get("loss_scaling", True) else whole


def adamw(cfg: ConfigDict, schedule: optax.Schedule) -> optax.GradientTransformation:
    """AdamW (Loshchilov and Hutter 2019)."""

    def decays(params: Tree) -> Tree:
        return jax.tree.map(lambda x: x.ndim > 1, params)

    return optax.adamw(
        schedule, b1=cfg.adam_b1, b2=cfg.adam_b2, eps=cfg.adam_eps, weight_decay=cfg.weight_decay, mask=decays
    )


def scale_by_peak(learning_rate: float) -> optax.GradientTransformation:
    """Updates times the highest learning rate, which stands in the state."""

    def scale(updates: Tree, state: PeakState, params: Tree | None = None) -> tuple[Tree, PeakState]:
        return jax.tree.map(lambda x: x * state.peak.astype(x.dtype), updates), state

    return optax.GradientTransformation(lambda params: PeakState(jnp.float32(learning_rate)), scale)


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Scales the gradient to a norm of at most `limit`. optax's own divides, which XLA's CPU does in a pass of its own."""

    def clip(updates: Tree, state: optax.EmptyState, params: Tree | None = None) -> tuple[Tree, optax.EmptyState]:
        scale = jnp.minimum(1.0, limit / optax.global_norm(updates))
        return jax.tree.map(lambda x: x * scale.astype(x.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), clip)
