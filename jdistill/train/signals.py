"""Signals that ask a run to stop: noted at once, obeyed by the loop between two steps, and in stopping_at between two pieces of work."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jdistill.core import sharding
from jdistill.core.stopping import stopping_by

AGREE_EVERY = 10  # steps after which processes ask one another; slow ones ask after each
SLOW_STEP = 1.0  # seconds: the grace of a job, two minutes in launch/, is not to go by in a few steps


class Interrupted(Exception):
    """A signal asked the run to stop; its state is saved."""

    def __init__(self, caught: list[str], step: int):
        self.name, self.step = (caught[0] if caught else "a signal in another process"), step
        super().__init__(f"{self.name} at step {step}")


@contextmanager
def catch_signals() -> Iterator[list[str]]:
    """Collects SIGTERM and SIGINT as names in a list instead of dying.

    Raises: KeyboardInterrupt at a second SIGINT.
    """
    caught: list[str] = []

    def handle(number: int, _: Any) -> None:
        if signal.Signals(number) is signal.SIGINT and caught:
            raise KeyboardInterrupt
        caught.append(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Agreement:
    """Whether a run stops for a signal, or saves where it is since it has not for long: of several processes all ask one another, after the
    same steps.

    Args:
      done: steps before the first.
      minutes: without a checkpoint after which one is due; 0: none ever is.
    """

    def __init__(self, done: int, minutes: float = 0.0):
        self._slow, self._asked = True, (done, time.monotonic())  # until a step has shown that it is not
        self._seconds = 60 * minutes or math.inf
        self.saved()

    def saved(self) -> None:
        """Takes note of a checkpoint whose writing has begun; saving waits until the one before is written."""
        self._saved_at = time.monotonic()

    def reached(self, caught: Sequence[str], done: int) -> bool:
        """After `done` steps, whether a signal came, to any process where they ask one another now; caught: those of this one."""
        if sharding.process_count() == 1:
            return bool(caught)
        (before, began), now = self._asked, time.monotonic()
        every = 1 if self._slow else AGREE_EVERY
        if done // every == before // every:
            return False
        self._slow = sharding.any_process(now - began > SLOW_STEP * (done - before))
        self._asked = done, now
        return sharding.any_process(bool(caught))

    def save_due(self, done: int) -> bool:
        """After `done` steps, whether a checkpoint is due by the clock of any process, since the last that was `saved`; asked after `reached`."""
        if self._seconds == math.inf or (sharding.process_count() > 1 and done != self._asked[0]):
            return False
        return sharding.any_process(time.monotonic() - self._saved_at >= self._seconds)


def stopping_at(caught: Sequence[str]) -> AbstractContextManager[None]:
    """stopping_by signals that were caught, in a run of one process: of several none may leave a step that the others make."""
    return stopping_by(caught if sharding.process_count() == 1 else ())
