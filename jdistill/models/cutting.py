"""Which layers of its start a student takes."""

from __future__ import annotations

from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.models.architecture import ModelConfig

COPIED = ("last", "first", "spread", "none")


def checked_layers(student: ConfigDict, start: ModelConfig) -> int:
    """How many layers student.layers (0: all) asks for. Raises UserError where the start has fewer."""
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
    """For each layer of the student the start's layer that it begins as, or None for a random start. which: one of COPIED."""
    K, N = student.num_layers, start.num_layers
    if which == "none" or student.hidden_size != start.hidden_size:
        return [None] * K
    if which == "last":
        return list(range(N - K, N))
    if which == "first":
        return list(range(K))
    return [round((k + 1) * N / K) - 1 for k in range(K)]  # spread evenly, the last layer included
