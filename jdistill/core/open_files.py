"""How many files this process may have open: a cache in many parts has three of each, and the usual limit is 1,024."""

from __future__ import annotations

import resource
from contextlib import suppress

MOST_OPEN = 1 << 16


def allow_open_files() -> None:
    """Raises this process's limit of open files as far as the system lets it, up to MOST_OPEN."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_OPEN if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # a system that allows fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
