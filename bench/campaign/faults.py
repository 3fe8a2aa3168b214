"""The C library of bench/faults.c: built, loaded into this process, armed and read."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "faults.c"
ACTIONS = ("count", "kill before", "kill after", "kill halfway", "fail from", "fail once", "terminate")  # as the C enum
KILLS = ACTIONS[1:4]
ALL_KINDS = "ownsdutl"
# The calls that a full disk, a broken disk and missing rights refuse, by letter (see faults.c).
REFUSED_BY = {errno.ENOSPC: "owndl", errno.EIO: "ownsdutl", errno.EACCES: "ondutl"}


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th write call, of those whose letter is in `kinds`; n = 0: nothing, they are counted."""

    n: int = 0
    action: str = "count"
    error: int = 0
    kinds: str = ALL_KINDS

    def __str__(self) -> str:
        what = f" with {errno.errorcode[self.error]}" if self.error else ""
        return f"{self.action}{what} at call {self.n} of {self.kinds}" if self.n else "none"


def build(folder: Path) -> Path:
    """Compiles the library into `folder`, anew where the source is newer."""
    library = folder / "faults.so"
    if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        beside = library.with_suffix(f".{os.getpid()}")
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", str(beside), str(SOURCE), "-ldl"], check=True, timeout=60
        )
        beside.replace(library)
    return library


def start_again_with(library: Path, **environment: str) -> None:
    """Replaces this process by itself with the library loaded, once."""
    if os.environ.get("LD_PRELOAD") != str(library):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | environment | {"LD_PRELOAD": str(library)})


def arm(fault: Fault, folder: Path, trace: Path | None = None) -> None:
    """From here on write calls under `folder` count. trace: gets a line a call: number, letter, path below the folder."""
    _library().faults_arm(
        *(str(folder).encode(), fault.kinds.encode(), ctypes.c_long(fault.n), ACTIONS.index(fault.action), fault.error),
        str(trace or "").encode(),
    )


def disarm() -> tuple[int, int]:
    """(calls counted, calls failed) since arm."""
    library = _library()
    library.faults_disarm()
    return library.faults_count(), library.faults_failed()


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.faults_count.restype = library.faults_failed.restype = ctypes.c_long
    return library
