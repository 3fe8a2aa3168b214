"""What a student takes of its start: which layers, and how they are handed to an architecture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Tree
from jdistill.models.architecture import C, ModelConfig

COPIED = ("last", "first", "spread", "none")


@dataclass(frozen=True)
class Cut(Generic[C]):
    """What a student is made from. rng is drawn from in this order: sample, layers.

    Args:
      config: the student's sizes.
      whole, params: its start's sizes, and Flax parameters, float32.
      layers: for each layer of the student the start's layer that it begins as; None: at random.
      block_start: how narrower token embeddings begin, one of models.bert.student.BLOCK_STARTS.
      pooling: that makes a text's vector of the start's states.
      sample: gives token ids of the training text, and the places in their texts where they stood, int [N] each.
      seed: of what is drawn beside rng.
    """

    config: C
    whole: C
    params: Tree
    layers: Sequence[int | None]
    block_start: str
    pooling: str
    sample: Callable[[], tuple[np.ndarray, np.ndarray]]
    rng: np.random.Generator
    seed: int

    def taken(self, random_layer: Callable[[C, np.random.Generator], Tree]) -> Tree:
        """The student's layers, {"layer_0": …}.

        Args:
          random_layer: (config, rng) -> the parameters of one layer, for those that no layer of the start is.
        """
        return {
            f"layer_{k}": self.params[f"layer_{layer}"] if layer is not None else random_layer(self.config, self.rng)
            for k, layer in enumerate(self.layers)
        }


def checked_layers(student: ConfigDict, start: ModelConfig) -> int:
    """How many layers student.layers asks for; 0: all.

    Raises: UserError where the start has fewer.
    """
    layers = student.layers or start.num_layers
    if not 1 <= layers <= start.num_layers:
        raise UserError(f"--config.student.layers={layers} must lie in 1..{start.num_layers}, the start's layers")
    return int(layers)


def check_whole_layers(student: ConfigDict, start: ModelConfig, what: str) -> None:
    """Raises UserError where the student would be narrower than a start that is cut by whole layers alone."""
    if student.embedding_size not in (-1, 0, start.hidden_size) or student.hidden_size not in (0, start.hidden_size):
        raise UserError(
            f"the start is {what}, of which a student takes whole layers: set --config.student.embedding_size=-1 and "
            "--config.student.hidden_size=0"
        )


def copied_layers(which: str, student: ModelConfig, start: ModelConfig) -> list[int | None]:
    """For each layer of the student the start's layer that it begins as, counted from 0, or None for a random start.

    Args:
      which: one of COPIED. Where the student is narrower than its start, no layer fits.
    """
    K, N = student.num_layers, start.num_layers
    if which == "none" or student.hidden_size != start.hidden_size:
        return [None] * K
    if which == "last":
        return list(range(N - K, N))
    if which == "first":
        return list(range(K))
    return [round((k + 1) * N / K) - 1 for k in range(K)]  # spread evenly, the last layer included
