"""Signals that ask a run to stop: noted at once, obeyed by the loop between two steps, and in stopping_at between two pieces of work."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from jdistill.core import sharding
from jdistill.core.stopping import stopping_by


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


def stopping_at(caught: Sequence[str]) -> AbstractContextManager[None]:
    """stopping_by signals that were caught, in a run of one process: of several none may leave a step that the others make."""
    return stopping_by(caught if sharding.process_count() == 1 else ())
