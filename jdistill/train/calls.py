"""Steps that one call of a compiled program runs: which they are, their batches, and the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jdistill.core import sharding
from jdistill.core.types import Tree
from jdistill.train.dataset import Data
from jdistill.train.step import TrainState, jit_step


@dataclass(frozen=True)
class Call:
    """What one call of the program reads.

    Args:
      steps: that it runs.
      batch: on the devices; of several steps a tuple of their batches, of one shape.
    """

    steps: int
    batch: Tree


def calls(
    data: Data, first: int, last: int, most: int, checkpoint_every: int, mesh: jax.sharding.Mesh
) -> Iterator[Call]:
    """The calls that run the steps first, first + 1, …, last - 1.

    A call of `most` steps begins at a multiple of it, so that a resumed stage has the calls of one that was never stopped. Steps among
    which a checkpoint is due, or whose batches are of several shapes, run one by one.
    """
    step = first
    while step < last:
        due = (step + most - 1) // checkpoint_every > step // checkpoint_every
        steps = 1 if due else _steps_of(data, step, last, most)
        batches = tuple(sharding.shard_rows(data.batch(each), mesh) for each in range(step, step + steps))
        yield Call(steps, batches if steps > 1 else batches[0])
        step += steps


def _steps_of(data: Data, step: int, last: int, most: int) -> int:
    if most == 1 or step % most or step + most > last:
        return 1
    return most if len({_kind_of(data, each) for each in range(step, step + most)}) == 1 else 1


def _kind_of(data: Data, step: int) -> tuple[Any, int | None]:
    """What decides the shapes of a step's arrays: its batch's shape, and the group of its rows, which may have arrays of their own."""
    (shape, rows), groups = data.batches.at(step), data.batches.groups
    return shape, None if groups is None else int(groups[rows[0]])


class Programs:
    """A stage's step as programs, each compiled for the shapes that it is called with.

    Args:
      step: as train.step.make_step has it.
      mesh, state: as train.step.jit_step has them.
    """

    def __init__(self, step: Callable[..., Any], mesh: jax.sharding.Mesh, state: TrainState):
        self._one, self._several = jit_step(step, mesh, state), jit_step(several(step), mesh, state)

    def of(self, call: Call) -> Any:
        """The jitted program of a call: (state, frozen, batch) -> (state, metrics)."""
        return self._one if call.steps == 1 else self._several


def several(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step as train.step.make_step has it, run for each batch of a tuple, one after another; metrics are [steps] each."""

    def steps(state: Any, frozen: Tree, batches: tuple[Tree, ...]) -> tuple[Any, dict[str, jax.Array]]:
        side_by_side = jax.tree.map(lambda *of: jnp.stack(of), *batches)
        return jax.lax.scan(lambda state, batch: step(state, frozen, batch), state, side_by_side)

    return steps
