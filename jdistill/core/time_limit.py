"""A question with a limit of time, whatever is asked."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


def within(seconds: float, question: Callable[[], _Answer]) -> _Answer:
    """What a function gives. Raises TimeoutError after so many seconds: looking up a name, and some libraries' questions, have no limit
    of their own."""
    outcome: queue.SimpleQueue[tuple[_Answer | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((question(), None))
        except BaseException as error:
            outcome.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        value, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
