"""One process at a time: a lock that dies with the process that holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.core.files import naming
from jdistill.core.printable import without_secrets
from jdistill.core.progress import log

REMOVED = (errno.ENOENT, errno.ESTALE)  # of a file that another has removed, here and on a network's server
WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)  # what a file system that has none says


@contextmanager
def only_one(path: Path, place: Path, what: str, wait: bool = False) -> Iterator[None]:
    """Holds a lock in the file `path`, which is there only meanwhile.

    Args:
      path: the lock's file, in a folder that is there.
      place, what: what it guards and what is done there ("a run"), for the other process's message.
      wait: for the end of another process that holds it, instead of giving up.

    Raises: UserError where another process holds it, with who that is. On a file system without locks it says so and goes on.
    """
    with naming(path):
        handle = _open_locked(path, place, what, wait)
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                path.unlink()  # while it is held, so that nobody waits at a name that is going
            os.close(handle)


def try_lock(handle: int) -> bool | None:
    """Locks an open file for this process: True, False where another process has it, None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in WITHOUT_LOCKS:
            return None
        raise


def _open_locked(path: Path, place: Path, what: str, wait: bool) -> int | None:
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if not path.is_symlink():
                raise
            raise UserError(f"{path} is a link, and no lock of ours; look where it leads, and remove it") from error
        try:
            if (held := try_lock(handle)) is None:
                log.warning("%s is on a file system without locks: take care that one process works there", place)
                os.close(handle)
                return None
            if not held and wait:
                fcntl.flock(handle, fcntl.LOCK_EX)
            elif not held:
                who = os.pread(handle, 4096, 0).decode(errors="replace").strip()
                os.close(handle)
                raise UserError(
                    f"{place} is in use by {what} of another process{f' ({who})' if who else ''}; wait for its end, or choose another place"
                )
            # The one before may have removed the file between our opening and locking it: then it is nobody's.
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                break
        except OSError as error:
            if error.errno not in REMOVED:
                raise
        os.close(handle)
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    command = without_secrets(shlex.join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:]]))[:300]
    os.ftruncate(handle, 0)
    os.pwrite(
        handle,
        f"process {os.getpid()} on {socket.gethostname()} since {since}: {command}\n".encode(errors="replace"),
        0,
    )
    return handle
