"""What ends a stage before its last step: a dev score that stands still, or whoever compares it with other trainings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ml_collections import ConfigDict

from jdistill.core.progress import log
from jdistill.train.checkpoint import Checkpoints

BETTER_AT_KEY = "better_at"  # of a checkpoint's description; those of older versions have none


class GiveUp(Protocol):
    """Who compares a training with others."""

    def __call__(self, step: int, score: float, last: bool = False) -> bool:
        """Whether the training is to end at this checkpoint, of which it is told step and dev score. last: it ends there anyway."""


class Patience:
    """Whether cfg.patience checkpoints have gone by without a better dev score; one that is equal is not better.

    The step of the last better one stands in each checkpoint's description, so that a resumed run stops where the uninterrupted one does,
    although of equal checkpoints the newest alone is kept.
    """

    def __init__(self, cfg: ConfigDict, checkpoints: Checkpoints, about: dict[str, Any], stage: str):
        """checkpoints: of the stage. about: what they are described by, which it adds to. stage: its name."""
        self._patience, self._every, self._stage = cfg.patience, cfg.checkpoint_every, stage
        self._checkpoints, self._about, self._told = checkpoints, about, False

    @property
    def better_at(self) -> int | None:
        """The step of the last dev score that was better than all before; None where there is none."""
        return self._about.get(BETTER_AT_KEY)

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint, the newest that there is. saved: its description."""
        self._about[BETTER_AT_KEY] = saved.get(BETTER_AT_KEY, self._checkpoints.best_step())

    def note(self, step: int, score: float | None) -> None:
        """Takes the dev score of a checkpoint that is about to be saved; None: it has none, which is told once."""
        best = self._checkpoints.best_score()
        if score is not None and (best is None or score > best):
            self._about[BETTER_AT_KEY] = step
        if score is None and self._patience and not self._told:
            self._told = True
            log.warning(
                "WARNING: --config.patience=%d does not end %s, which has no dev score", self._patience, self._stage
            )

    def is_over(self, step: int) -> bool:
        """Whether the training is to end at this step, whose checkpoint was noted if it has one."""
        since = self.better_at
        return (
            bool(self._patience)
            and since is not None
            and step % self._every == 0
            and step - since >= self._patience * self._every
        )
