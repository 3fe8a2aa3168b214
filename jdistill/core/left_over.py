"""What a process that was killed, or could not delete, left half written: taken away by the next one that holds the place."""

from __future__ import annotations

import glob
import shutil
from pathlib import Path

from jdistill.core.files import TEMPORARY
from jdistill.core.progress import log


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
    """Takes away whatever was being written below a folder that this process alone works in."""
    for path in list(folder.rglob(f"{TEMPORARY}*")):
        if not _is_lock(path):
            take_away(path)


def clear_beside(path: Path, suffix: str = "") -> None:
    """Takes away what writing_beside was writing for a file whose lock this process holds.

    suffix: a pattern of what follows the name, for several files of one name (".*").
    """
    name = f"-{path.name}"[-80:] if not suffix else f"-{path.name}"  # writing_beside cuts a long one
    for left_over in path.parent.glob(f"{TEMPORARY}*{glob.escape(name)}{suffix}"):
        if not _is_lock(left_over):
            take_away(left_over)


def _is_lock(path: Path) -> bool:
    return path.name.startswith(f"{TEMPORARY}lock")
