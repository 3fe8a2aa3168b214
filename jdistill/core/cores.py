"""How many cores this process may use."""

from __future__ import annotations

import os


def core_count() -> int:
    """The cores that the system gives this process, where it tells; else those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
