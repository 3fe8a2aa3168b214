"""An average of the parameters over the steps, which is scored and exported in the place of the last ones (Polyak and Juditsky 1992)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jdistill.core.types import Array, Tree


class AverageState(NamedTuple):
    """The optimiser's state with the parameters' average.

    Args:
      average: as the parameters, float32.
      steps: that it is over, int32 scalar.
      inner: the optimiser's own state.
    """

    average: Tree
    steps: Array
    inner: Tree


def with_average(optimizer: optax.GradientTransformation, decay: float) -> optax.GradientTransformation:
    """The same optimiser, which also keeps average <- d average + (1 - d) parameters after each step.

    d is min(decay, (1 + t) / (10 + t)) at step t, so that the start does not weigh on a short run.

    Args:
      optimizer: whose updates are as they were.
      decay: below 1; about 1 / (1 - decay) steps count.

    Source: Polyak and Juditsky 1992, in the exponential form of Tarvainen and Valpola 2017.
    """

    def init(params: Tree) -> AverageState:
        return AverageState(jax.tree.map(jnp.array, params), jnp.int32(0), optimizer.init(params))

    def update(grads: Tree, state: AverageState, params: Tree | None = None) -> tuple[Tree, AverageState]:
        assert params is not None
        updates, inner = optimizer.update(grads, state.inner, params)
        t = state.steps.astype(jnp.float32)
        d = jnp.minimum(decay, (1 + t) / (10 + t))
        after = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda mean, new: mean + (1 - d) * (new - mean), state.average, after)
        return updates, AverageState(average, state.steps + 1, inner)

    return optax.GradientTransformation(init, update)


def averaged(params: Tree, opt_state: Tree) -> Tree:
    """What is scored and exported: the average that an optimiser's state holds, or, where it holds none, the parameters.

    Args:
      params: the last ones.
      opt_state: as the optimiser has it, or as a checkpoint gives it that is read without its types.
    """
    state = _fields(opt_state)
    while state and "average" not in state:
        state = _fields(state.get("inner"))
    return state.get("average", params)


def _fields(state: Tree) -> dict[str, Any]:
    """Of a named tuple, or of the dict that Orbax makes of one."""
    return state if isinstance(state, dict) else state._asdict() if hasattr(state, "_asdict") else {}
