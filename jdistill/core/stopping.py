"""Whether a signal asks this process to stop: for work of many pieces, which may end between two of them and lose none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_signals: Sequence[str] = ()  # that came, by name


class Stopped(Exception):
    """A signal asks this process to stop; what was done so far is kept."""


@contextmanager
def stopping_by(signals: Sequence[str]) -> Iterator[None]:
    """Within it stop_if_asked looks at these, to which whoever catches signals adds."""
    global _signals
    before, _signals = _signals, signals
    try:
        yield
    finally:
        _signals = before


def stop_if_asked() -> None:
    """Raises Stopped where a signal came."""
    if _signals:
        raise Stopped(_signals[0])
