"""What a method is: a handful of pure functions that the one training loop calls (DESIGN, contract 1); and what that makes of a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder


@dataclass(frozen=True)
class Method:
    """A method bound to its teacher and config. n: rows of a batch. A batch is a dict of arrays [n, ...]; which, the stage's data decide.

    Args:
      params: what is trained, a tree of arrays; params["student"] is the student's own weights (Encoder.weights), whatever stands beside
        it helps training only and is dropped at export.
      student: the encoder that those weights belong to.
      frozen: arrays that the functions read and nothing trains (parts of the teacher).
      represent: (params, frozen, batch, rng) -> dict of arrays [n, ...]; a row depends on no other row, so that the loop may represent a
        large batch in chunks. rng None: no dropout.
      objective: (params, frozen, representations, batch) -> (scalar, metrics: scalars by name, to which the scalar is added as "loss"
        where there is none), of all rows of the global batch.
      merged: params -> the student's weights, where params["student"] is not all of them (low-rank adapters, whose base stands in
        frozen); else None.
    """

    params: Tree
    student: Encoder
    frozen: Tree
    represent: Callable[[Tree, Tree, dict[str, Array], Array | None], dict[str, Array]]
    objective: Callable[[Tree, Tree, dict[str, Array], dict[str, Array]], tuple[Array, dict[str, Array]]]
    merged: Callable[[Tree], Tree] | None = None

    def trained(self, params: Tree) -> Encoder:
        """The student with these parameters, on the host."""
        return self.student.with_weights(self.merged(params) if self.merged else params["student"])


def scalars(loss: ConfigDict, *names: str) -> dict[str, np.float32]:
    """Weights and temperatures of a loss, for Method.frozen: not constants of the compiled step, so that runs that differ in them share it.

    Args:
      loss: cfg.loss.
      names: of its keys.

    Returns: float32 scalars by name.

    Raises: UserError for a temperature that is not positive.
    """
    if "temperature" in names and not loss.temperature > 0:
        raise UserError(f"--config.loss.temperature={loss.temperature} must be above 0")
    return {name: np.float32(loss[name]) for name in names}


class TrainedStage(NamedTuple):
    """A stage at its end.

    Args:
      params: with the best dev score or, where the config wants them, the last; on the host.
      seconds: that its training took, those before a resumed checkpoint included.
      steps: that it took.
      checkpoint: the step that params are of.
      devices: that it was trained on, in words.
    """

    params: Tree
    seconds: float
    steps: int
    checkpoint: int
    devices: str
