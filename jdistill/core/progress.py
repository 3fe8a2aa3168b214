"""Progress of long steps: a bar with rate and ETA on a terminal, a plain log line now and then elsewhere."""

from __future__ import annotations

import io
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import absl.logging
from tqdm import tqdm

from jdistill.core.printable import printable

log = logging.getLogger("jdistill")


def setup_logging(level: int = logging.INFO) -> None:
    """Sends jdistill's log lines, with the time of day, to standard error. Calling it twice changes nothing."""
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Printable("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.propagate = False
    log.setLevel(level)
    if isinstance(
        sys.stdout, io.TextIOWrapper
    ):  # answers of a command hold texts, and a terminal may know fewer letters
        sys.stdout.reconfigure(errors="backslashreplace")
    # Libraries tell at INFO which backends they did not find and each file that a checkpoint writes.
    logging.getLogger("jax").setLevel(logging.WARNING)
    absl.logging.set_verbosity(absl.logging.WARNING)
    absl.logging.get_absl_logger().addFilter(_not_orbaxs)
    sys.unraisablehook = _tell_unraisable


def _not_orbaxs(record: logging.LogRecord) -> bool:
    """False of what Orbax's threads log, tracebacks too: their errors reach the loop, which tells them in a line."""
    return "orbax" not in Path(record.pathname).parts


# As Python tells an exception that nobody can catch, but for what TensorStore's threads raise after a save that failed.
def _tell_unraisable(unraisable: Any) -> None:
    if not (isinstance(unraisable.exc_value, RuntimeError) and str(unraisable.exc_value) == "Event loop is closed"):
        sys.__unraisablehook__(unraisable)


# It stands in the sys module now, whose documentation may be somebody's training text (data.text.python_docs).
_tell_unraisable.__doc__ = sys.__unraisablehook__.__doc__


class _Printable(logging.Formatter):
    """Log lines in which a text's control characters are shown, not obeyed."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n")


class Progress:
    """Counts done units of a long step; `advance(n)` after each piece of work."""

    def __init__(self, what: str, total: int, unit: str, initial: int = 0, every_s: float = 20.0):
        what = printable(what)  # which may have a stranger's file name in it
        self.what, self.total, self.unit, self.done, self.initial = what, total, unit, initial, initial
        self.start = self.last = time.monotonic()
        self.every_s = every_s
        self.bar = None
        if sys.stderr.isatty():
            self.bar = tqdm(desc=what, total=total, unit=f" {unit}", initial=initial, dynamic_ncols=True)

    def advance(self, n: int, note: str = "") -> None:
        """Counts n more units; `note` stands beside the bar."""
        self.done += n
        if self.bar is not None:
            if note:
                self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(n)
        elif time.monotonic() - self.last >= self.every_s:
            self.last = time.monotonic()
            rate = (self.done - self.initial) / (self.last - self.start)
            eta = (self.total - self.done) / rate if rate > 0 else float("inf")
            log.info(
                "%s: %d of %d %s (%.0f %%), %.1f %s/s, %s left%s",
                self.what,
                self.done,
                self.total,
                self.unit,
                100 * self.done / max(self.total, 1),
                rate,
                self.unit,
                clock(eta),
                f", {note}" if note else "",
            )

    def close(self) -> None:
        """Ends the bar."""
        if self.bar is not None:
            self.bar.close()


@contextmanager
def progress(what: str, total: int, unit: str, initial: int = 0) -> Iterator[Progress]:
    """`with progress("teacher answers", n, "texts") as p: p.advance(64)`."""
    meter = Progress(what, total, unit, initial)
    try:
        yield meter
    finally:
        meter.close()


def clock(seconds: float) -> str:
    """Seconds as a person reads them: 45 s, 3 min 20 s, 2 h 05 min."""
    if seconds == float("inf") or seconds != seconds:
        return "unknown time"
    seconds = int(round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
