"""What a process that was killed, or could not delete, left half written: taken away by the next one that holds the place."""

from __future__ import annotations

import glob
import os
import re
import shutil
from pathlib import Path

from jdistill.core.files import TEMPORARY
from jdistill.core.locks import try_lock
from jdistill.core.progress import log

RANDOM_PART = 8 * "[a-z0-9_]"  # of a name that tempfile makes, as a pattern; another file's name may begin or end alike
BEING_WRITTEN = re.compile(f"{re.escape(TEMPORARY)}(?:new|old)-(.+)-{RANDOM_PART}", re.DOTALL)
MOVED_AWAY = re.compile(f"{re.escape(TEMPORARY)}old-(.+)-{RANDOM_PART}", re.DOTALL)


def take_away(path: Path) -> None:
    """Deletes a temporary file or folder. One that cannot be deleted costs room and no run: it is said, and the next run tries again."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass  # gone meanwhile
    except OSError as error:
        log.warning("%s is no longer needed and cannot be deleted (%s); the next run tries again", path, error)


def clear_left_over(folder: Path) -> None:
    """Takes away whatever was being written below a folder that this process alone works in, and brings back what was moved away for a
    swap that never came."""
    for path in list(folder.rglob(f"{TEMPORARY}*")):
        if not path.name.startswith(f"{TEMPORARY}lock") and not _is_being_written(path):
            bring_back(path)
            take_away(path)


def _is_being_written(path: Path) -> bool:
    """Whether a temporary folder is one that `replacing` fills for a place whose lock another process holds."""
    match = BEING_WRITTEN.fullmatch(path.name)
    lock = path.with_name(f"{TEMPORARY}lock-{match[1]}") if match else path
    if not match or not lock.is_file():
        return False
    handle = os.open(lock, os.O_RDWR)
    try:
        return try_lock(handle) is False
    finally:
        os.close(handle)


def bring_back(path: Path) -> None:
    """Of a temporary folder that holds what a swap moved away: moves it back where its place is empty."""
    if match := MOVED_AWAY.fullmatch(path.name):
        out = path.with_name(match[1])
        if (path / out.name).is_dir() and not out.exists():
            os.rename(path / out.name, out)
            log.info("brought back %s, which a killed process had moved away", out)


def clear_beside(path: Path, suffix: str = "") -> None:
    """Takes away what writing_beside was writing for a file whose lock this process holds.

    suffix: a pattern of what follows the name, for several files of one name (".*").
    """
    name = f"-{path.name}"[-80:] if not suffix else f"-{path.name}"  # writing_beside cuts a long one
    for left_over in path.parent.glob(f"{TEMPORARY}{RANDOM_PART}{glob.escape(name)}{suffix}"):
        take_away(left_over)
