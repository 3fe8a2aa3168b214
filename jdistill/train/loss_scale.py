"""Dynamic loss scaling for float16 (Micikevicius et al. 2018): the loss grows before the gradient is taken, so that small
gradients do not become zero, and the gradient shrinks again; a step whose gradient overflows is skipped.

The rule is that of flax.training.dynamic_scale, which wraps jax.value_and_grad; here the gradient is pulled through chunk by
chunk, so the rule is an optimiser's, and its state is in the checkpoint with the rest."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jdistill.core.types import Array, Tree

START_SCALE, LOWEST_SCALE, HIGHEST_SCALE = 2.0**16, 2.0**-14, 2.0**24
GROW_AFTER = 500  # steps in a row without overflow until the scale doubles


class ScaledState(NamedTuple):
    """The optimiser's state with the loss's factor.

    Args:
      scale: the factor, float32 scalar.
      good_steps: without overflow since it last changed, int32 scalar.
      inner: the optimiser's own state.
    """

    scale: Array
    good_steps: Array
    inner: Tree


def with_loss_scale(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """An optimiser of the gradients of the loss times scale_of(state).

    Where a gradient overflowed nothing is updated and the scale is halved; after GROW_AFTER steps in a row without, it doubles.

    Args:
      optimizer: of the gradients of the loss itself.

    Source: Micikevicius et al. 2018.
    """

    def init(params: Tree) -> ScaledState:
        return ScaledState(jnp.float32(START_SCALE), jnp.int32(0), optimizer.init(params))

    def update(grads: Tree, state: ScaledState, params: Tree | None = None) -> tuple[Tree, ScaledState]:
        finite = all_finite(grads)
        unscaled = jax.tree.map(lambda g: jnp.where(finite, g.astype(jnp.float32) / state.scale, 0.0), grads)
        updates, inner = optimizer.update(unscaled, state.inner, params)
        updates = jax.tree.map(lambda u: jnp.where(finite, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda new, old: jnp.where(finite, new, old), inner, state.inner)
        grows = finite & (state.good_steps + 1 >= GROW_AFTER)
        scale = jnp.where(finite, jnp.where(grows, 2.0, 1.0), 0.5) * state.scale
        good_steps = jnp.where(finite & ~grows, state.good_steps + 1, 0)
        return updates, ScaledState(jnp.clip(scale, LOWEST_SCALE, HIGHEST_SCALE), good_steps, inner)

    return optax.GradientTransformation(init, update)


def scale_of(state: Tree) -> Array | None:
    """The factor of the loss in this optimiser state, float32 scalar; None for an optimiser without."""
    return state.scale if isinstance(state, ScaledState) else None


def all_finite(tree: Tree) -> Array:
    """Whether no array of the tree holds NaN or infinity: bool scalar."""
    return jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves(tree)]).all()
