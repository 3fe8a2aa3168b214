"""What a method is: a handful of pure functions that the one training loop calls (DESIGN, contract 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from jdistill.encoder import Encoder

Array = jax.Array
Tree = Any


@dataclass(frozen=True)
class Method:
    """A method bound to its teacher and config. B: texts in a batch, L: tokens.

    params: what is trained, a tree of arrays; params["student"] is the student's own weights (Encoder.weights),
    whatever stands beside it helps training only and is dropped at export. student: the encoder that those weights
    belong to. frozen: arrays that the functions read and nothing trains (parts of the teacher). A batch is a dict of
    arrays with one row a text: "ids" int32 [B, L], "mask" bool [B, L], "teacher" float32 [B, D], the teacher's cached
    answer.

    represent(params, frozen, batch, rng) -> dict of arrays, one row a text. rng is None for no dropout.
    objective(params, frozen, representations, batch) -> (scalar, metrics: dict of scalars).
    """

    params: Tree
    student: Encoder
    frozen: Tree
    represent: Callable[[Tree, Tree, dict[str, Array], Array | None], dict[str, Array]]
    objective: Callable[[Tree, Tree, dict[str, Array], dict[str, Array]], tuple[Array, dict[str, Array]]]
