"""The watch over a stage: metrics looked at a few steps behind the device, and the end of a training that went wrong."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import optax

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.train.checkpoint import Checkpoints

_norm = jax.jit(optax.global_norm)  # one program, not one an operation
SKIPPED_KEY = "skipped"  # of a checkpoint's description; those of older versions have none
MOST_SKIPPED = 40  # steps in a row that float16 may overflow: the loss scale has long been as low as it gets


class Diverged(UserError):
    """A loss or parameters that are not finite, or float16 that overflows at every step."""


class Watch:
    """The metrics of started steps, read in their order.

    To read a metric waits for its step, so the newest few are left alone and the device has work meanwhile.
    """

    def __init__(self, checkpoints: Checkpoints, about: dict[str, Any], rate_key: str = "learning_rate"):
        """
        Args:
          checkpoints: of the stage; all are on disk before an error is raised, which names the newest.
          about: what they are described by, which it adds to: a resumed run goes on counting the steps that float16 skipped.
          rate_key: of the stage's learning rate, for messages.
        """
        self.checkpoints, self._about, self._rate_key = checkpoints, about, rate_key
        self.pending: list[tuple[int, int, dict[str, Array]]] = []  # last step, how many, their metrics, not yet read
        self.window: list[dict[str, float]] = []  # the metrics read since the last `take`, one entry a step
        self.loss_scale = 1.0

    @property
    def skipped(self) -> int:
        """How many steps in a row float16 has skipped by now."""
        return int(self._about.get(SKIPPED_KEY, 0))

    def add(self, step: int, metrics: dict[str, Array], steps: int = 1) -> None:
        """Takes the metrics of started steps, which need not be computed yet.

        Args:
          step: the last of them.
          metrics: by name; scalars, or of several steps [steps].
          steps: how many were started in one call.
        """
        self.pending.append((step, steps, metrics))

    def look(self, keep: int = 0) -> None:
        """Reads the metrics of all but the newest `keep` calls.

        Raises: Diverged at the first that is not finite, and where float16 overflowed in MOST_SKIPPED steps in a row.
        """
        while len(self.pending) > keep:
            last, steps, metrics = self.pending.pop(0)
            read = {name: np.ravel(value) for name, value in metrics.items()}
            for i in range(steps):
                self._read(last - steps + 1 + i, {name: float(values[i]) for name, values in read.items()})

    def _read(self, step: int, values: dict[str, float]) -> None:
        if not all(map(math.isfinite, values.values())):
            raise self._diverged(step, f"the loss is not finite: {values}")
        self._about[SKIPPED_KEY] = self.skipped + 1 if values.get("skipped") else 0
        self.loss_scale = values.get("loss_scale", 1.0)
        if self.skipped == MOST_SKIPPED:
            raise self._overflows(step)
        self.window.append(values)

    def take(self) -> list[dict[str, float]]:
        """The metrics read since the last call, one entry a step."""
        window, self.window = self.window, []
        return window

    def check_trained(self, step: int) -> None:
        """Raises Diverged for a run of fewer than MOST_SKIPPED steps that skipped each of them: it has trained nothing."""
        if self.skipped == step:
            raise self._overflows(step)

    def check_params(self, step: int, params: Tree) -> None:
        """Raises Diverged for parameters that are not finite: the update that the next loss would have shown."""
        if not math.isfinite(float(_norm(params))):
            raise self._diverged(step, "the parameters are not finite")

    def _last_good(self) -> int:
        self.checkpoints.wait()
        return max(self.checkpoints.steps(), default=0)

    def _diverged(self, step: int, what: str) -> Diverged:
        return Diverged(
            f"stopped at step {step}: {what}. The last good checkpoint is that of step {self._last_good()}; "
            f"lower --config.{self._rate_key} or set --config.clip_norm, and start in a new workdir"
        )

    def _overflows(self, step: int) -> Diverged:
        return Diverged(
            f"stopped at step {step}: float16 overflowed in {self.skipped} steps in a row, the loss scaled by "
            f"{self.loss_scale:g} now. The model's activations leave float16's range; set --config.dtype=bfloat16 (or "
            f"float32), and start in a new workdir. The last good checkpoint is that of step {self._last_good()}"
        )
