"""The one exception that means: the user's input, files or flags need a change, and here is which; and how a command ends."""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from jdistill.core.printable import printable, without_secrets

EREMOTEIO = getattr(errno, "EREMOTEIO", errno.ETIMEDOUT)  # Linux's alone

# What a disk or its owner refuses: the user mends it, whichever of our lines met it.
FILE_SYSTEM = {
    errno.ENOSPC: "make room and run the same command again",
    errno.EDQUOT: "make room and run the same command again",
    errno.EROFS: "choose a folder that can be written to",
    errno.EACCES: "choose a place that you may use, or mend its permissions",
    errno.EPERM: "choose a place that you may use, or mend its permissions",
    errno.EIO: "the disk fails; choose another and run the same command again",
    errno.ENOTDIR: "a file stands where a folder should be",
    errno.EISDIR: "a folder stands where a file should be",
    errno.EEXIST: "something else stands there",
    errno.ENOENT: "it is not there, or was removed meanwhile",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "too many files are open; raise ulimit -n",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "there is too little memory",
    errno.ESTALE: "the network file system lost it; run the same command again",
    **dict.fromkeys(
        (errno.ETIMEDOUT, errno.ENOTCONN, EREMOTEIO), "it does not answer; run the same command again once it does"
    ),
    errno.ELOOP: "its links lead in a circle",
}

# What of it says nothing about the content of a file that is read: a moment later it may be there whole.
OF_MACHINE = (
    errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN,
    EREMOTEIO,
)  # fmt: skip
# What JAX, torch and ONNX Runtime say where a machine or its accelerator has too little memory.
MEMORY_GONE = re.compile(r"RESOURCE_EXHAUSTED|out of memory|failed to allocate memory", re.IGNORECASE)

# What JAX says where another process of the run is gone.
PEERS = re.compile(
    r"gloo \w+ failed|nccl|coordination service|heartbeat timeout|closed by peer|reset by peer|barrier (?:timed out|failed|with)|"
    r"already in error before the barrier",
    re.IGNORECASE,
)


_INSTALLED = {"site-packages", "dist-packages"}  # folders of what is installed, wherever they lie


class UserError(Exception):
    """A mistake the user can mend. The message names the key, file, line or row, what was found and what to do."""


CRASH_FILE = "crash.txt"
_crash_folder: Path | None = None


def keep_crashes_in(folder: Path) -> None:
    """Names the folder that crash.txt is written to if this command ends by a defect of ours."""
    global _crash_folder
    _crash_folder = folder


def exits_cleanly(resumes: bool) -> Callable[[Callable[..., int | None]], Callable[..., int]]:
    """Wraps a command so that it ends with one line and a status, never with a traceback.

    2: a UserError, or a file system that refuses. 130: Ctrl-C. 1: a defect of ours, whose traceback is whole in crash.txt, in the run's
    folder or the system's one for temporary files. resumes: whether the same command goes on where it was stopped, which Ctrl-C says.
    """

    def wrap(command: Callable[..., int | None]) -> Callable[..., int]:
        @functools.wraps(command)
        def run(*args, **kwargs) -> int:
            try:
                return command(*args, **kwargs) or 0
            except KeyboardInterrupt:
                return _end(
                    "stopped by Ctrl-C" + ("; the same command goes on where it stopped" if resumes else ""), 130
                )
            except BrokenPipeError:  # such as of `| head`; what Python would still flush goes nowhere
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 0
            except Exception as error:
                line, status = _told(error)
                return _end(line, status)

        return run

    return wrap


def _told(error: Exception) -> tuple[str, int]:
    """What a command says of the error that ended it, in a line, and its status."""
    if isinstance(error, UserError):
        return f"error: {error}", 2
    if lacks_memory(error):
        return (
            f"error: there is too little memory, of this machine or its accelerator ({first_line(error)[:300]}); lower batch_size, or in "
            "training chunk_size and block_size, or the length of the texts",
            2,
        )
    # A peer's end is said by "timed out" too, but by no OSError with a number of ours.
    of_peer = bool(PEERS.search(str(error)))
    refusal = _of_file_system(error) if isinstance(error, OSError) or not of_peer else None
    if refusal is not None:
        return f"error: {refusal}", 2
    if of_peer:
        lost = first_line(error)[:200]
        return f"error: another process of this run has ended ({lost}); start all of them again", 2
    return _crash(error), 1


def leave(status: int | str | None) -> NoReturn:
    """Ends the process with a command's status. After an error at once: a thread of a library that waits for a write that never came would
    hold it for ever."""
    if status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)
    raise SystemExit(0)


def lacks_memory(error: BaseException) -> bool:
    """Whether it says that the machine or its accelerator has too little memory."""
    return isinstance(error, MemoryError) or bool(MEMORY_GONE.search(str(error)))


def is_of_machine(error: BaseException) -> bool:
    """Whether memory, permissions, the number of open files or a disk that does not answer refused a reading, so that nothing is known of
    the file's content."""
    number = error.errno if isinstance(error, OSError) else number_of(error)
    return lacks_memory(error) or number in OF_MACHINE


def _end(line: str, status: int) -> int:
    print(printable(line, keep="\n"), file=sys.stderr)
    return status


def _of_file_system(error: BaseException | None) -> str | None:
    """An OSError, or one behind another library's exception, as a line; None where there is none that the user can mend."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None and error.errno in FILE_SYSTEM:
            where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
            return f"{where or 'a file'}: {os.strerror(error.errno)}; {FILE_SYSTEM[error.errno]}"
        if (number := number_of(error)) in FILE_SYSTEM:
            return f"{first_line(error)[:300]}; {FILE_SYSTEM[number]}"
        error = error.__cause__ or error.__context__
    return None


def number_of(error: BaseException) -> int:
    """The operating system's number in what a library of another language says ("No space left on device (os error 28)"); -1 for none."""
    text = str(error)
    if match := re.search(r"\(os error (\d+)\)", text):
        return int(match.group(1))
    return next((number for number in FILE_SYSTEM if os.strerror(number) in text), -1)


def _own_file(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)


def _crash(error: Exception) -> str:
    """Keeps the traceback and says where."""
    text = "".join(traceback.format_exception(error))
    paths = [Path(tempfile.gettempdir()) / f"jdistill-crash-{os.getpid()}.txt"]
    if _crash_folder is not None and _crash_folder.is_dir():
        paths.insert(0, _crash_folder / CRASH_FILE)
    for path in paths:
        try:  # the user's alone, and never through a link that lies there
            with open(path, "w", encoding="utf-8", errors="backslashreplace", opener=_own_file) as file:
                file.write(f"{without_secrets(' '.join(sys.argv))}\n\n{text}")
        except OSError:
            continue
        return f"error: {_defect(error)}: see {path}, and report it with that file"
    return f"error: {_defect(error)}, and no place to keep its traceback:\n{text}"


def _defect(error: Exception) -> str:
    """Where it is: the innermost line of ours, or of a method, set or source of the user's own."""
    kind, package = type(error).__name__, Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(package):
            return f"a defect in jdistill ({kind}, {path.relative_to(package.parent)}:{frame.lineno})"
        library = _INSTALLED.intersection(path.parts) or path.is_relative_to(sysconfig.get_path("stdlib"))
        if path.is_file() and not library:
            return f"a defect in {path}:{frame.lineno} ({kind})"
    return f"a defect in jdistill ({kind})"


def first_line(error: BaseException) -> str:
    """The first line of what an exception says, or its kind where it says nothing: a library's message within one of ours."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
