"""Batches made and put on the devices by a thread of their own, some calls ahead of the one that reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

B = TypeVar("B")


class BatchesAhead(Generic[B]):
    """What an iterator gives, one `take` after another.

    A batch depends on its step's number alone, so that what is made ahead and never read changes nothing.

    Args:
      batches: gone through by one thread.
      depth: of them stand ready or are being made; 0: each is made as it is asked for, by whoever asks.
    """

    def __init__(self, batches: Iterator[B], depth: int):
        self._batches, self._depth = batches, depth
        self._thread = ThreadPoolExecutor(1, "batches") if depth else None
        self._ready: deque[Future[B | None]] = deque()

    def take(self) -> B:
        """The next batch. Raises what making it raised; StopIteration after the last."""
        if self._thread is None:
            return next(self._batches)
        self._fill()
        batch = self._ready.popleft().result()
        if batch is None:
            raise StopIteration
        self._fill()
        return batch

    def _fill(self) -> None:
        while self._thread and len(self._ready) < self._depth:
            self._ready.append(self._thread.submit(next, self._batches, None))

    def close(self) -> None:
        """Ends the thread; what is being made is waited for."""
        if self._thread:
            self._thread.shutdown(wait=True, cancel_futures=True)
