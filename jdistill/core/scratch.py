"""A folder to sort in, within one that several processes share: taken away at the end, or, after a kill, by the next that sorts there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jdistill.core.files import TEMPORARY
from jdistill.core.left_over import RANDOM_PART, take_away
from jdistill.core.locks import try_lock

SCRATCH_PREFIX = f"{TEMPORARY}scratch-"
LOCK_FILE = "lock"  # held while its process lives


@contextmanager
def scratch_folder(folder: Path) -> Iterator[Path]:
    """A new folder of this process's own. On a file system without locks what killed processes left is not told from others', and stays."""
    for abandoned in folder.glob(f"{SCRATCH_PREFIX}{RANDOM_PART}"):
        with suppress(OSError), open(abandoned / LOCK_FILE, "r+b") as lock:
            if try_lock(lock.fileno()):
                take_away(abandoned)
    scratch = Path(tempfile.mkdtemp(dir=folder, prefix=SCRATCH_PREFIX))
    try:
        with open(scratch / "new", "wb") as lock:
            try_lock(lock.fileno())
            os.rename(scratch / "new", scratch / LOCK_FILE)  # now that it is held: others look at this name alone
            yield scratch
    finally:
        take_away(scratch)
