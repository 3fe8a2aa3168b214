"""Batches made and put on the devices by a thread of their own, some steps ahead of the step that reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

B = TypeVar("B")


class BatchesAhead(Generic[B]):
    """The batches of steps first, first + 1, …, last - 1, one `take` after another.

    A batch depends on its step's number alone, so that what is made ahead and never read changes nothing.

    Args:
      make: step -> batch, called by one thread, in the order of the steps.
      first, last: of the steps; from 0.
      depth: batches that stand ready or are being made; 0: each is made as it is asked for, by whoever asks.
    """

    def __init__(self, make: Callable[[int], B], first: int, last: int, depth: int):
        self._make, self._next, self._last, self._depth = make, first, last, depth
        self._thread = ThreadPoolExecutor(1, "batches") if depth else None
        self._ready: deque[Future[B]] = deque()

    def take(self) -> B:
        """The next step's batch. Raises what making it raised."""
        if self._thread is None:
            self._next += 1
            return self._make(self._next - 1)
        self._fill()
        batch = self._ready.popleft().result()
        self._fill()
        return batch

    def _fill(self) -> None:
        while self._thread and len(self._ready) < self._depth and self._next < self._last:
            self._ready.append(self._thread.submit(self._make, self._next))
            self._next += 1

    def close(self) -> None:
        """Ends the thread; what is being made is waited for."""
        if self._thread:
            self._thread.shutdown(wait=True, cancel_futures=True)
