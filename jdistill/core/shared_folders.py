"""Folders that the processes of a run share, on one machine or over a network, where what one wrote another may see late."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from jdistill.core import sharding
from jdistill.core.cache_mirror import bring_files, share_files
from jdistill.core.errors import UserError
from jdistill.core.files import TEMPORARY

Content = TypeVar("Content")
SEEN_WITHIN = 60.0  # seconds: a network's file system shows late what another machine wrote, NFS after 3 to 60
LOOK_EVERY = 0.5  # seconds


def awaited(read: Callable[[], Content | None]) -> Content | None:
    """What another process has written, read again and again until it is there; alone, a process sees its own at once.

    read: gives None for what is not there yet. Returns: None where it did not come within SEEN_WITHIN.
    """
    until = time.monotonic() + (SEEN_WITHIN if sharding.process_count() > 1 else 0.0)
    while (content := read()) is None and time.monotonic() < until:
        time.sleep(LOOK_EVERY)
    return content


def made_once(path: Path, read: Callable[[], Content | None], make: Callable[[], None], what: str) -> Content:
    """What a file of a cache holds, which the first process makes where neither this machine nor the cache's store has it; all call it.

    Args:
      read: gives None where there is no such file, or none that is whole.
      make: writes it; its folder is there.
      what: it is, for the other processes' messages.

    Raises: UserError where another process's file did not come within SEEN_WITHIN, and where one's own cannot be read back.
    """
    if not path.exists():
        bring_files(path.parent, path.name, path.name)
    if sharding.is_first_process() and read() is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        make()
        share_files(path.parent, path.name, path.name)
    sharding.barrier(what)
    if (content := awaited(read)) is None:
        raise UserError(
            f"{path}, which holds {what}, was written and cannot be seen here, or is not whole; run the same command again"
        )
    return content


def check_shared(folder: Path, key: str) -> None:
    """Refuses a folder that not all of a run's several processes see; all of them call it.

    Args:
      key: what error messages call it, with its value.

    Raises: UserError in every process.
    """
    mark = np.asarray(sharding.broadcast(np.random.default_rng().integers(2**32, size=2, dtype=np.uint32)))
    path = folder / f"{TEMPORARY}seen-{''.join(f'{part:08x}' for part in mark)}"

    def write() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path.touch()

    sharding.by_first_process(write, f"the writing to {folder}")
    lacks = sharding.any_process(awaited(lambda: path.exists() or None) is None)
    if sharding.is_first_process():
        path.unlink(missing_ok=True)
    if lacks:
        raise UserError(
            f"{key}: not all machines of the run see this folder, which the first process has written to; name one on a file system that "
            "they share"
        )
