"""What a command of the campaign is, and how it ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign.faults import Fault


@dataclass(frozen=True)
class Launch:
    """One command: a module of jdistill and its arguments, or a function to call instead (module "").

    devices: made up on the CPU. processes: of the run, joined by a coordinator; the fault is that of the process `faulty`.
    """

    module: str
    arguments: Sequence[str] = ()
    fault: Fault = Fault()
    kill_after: float = 0.0  # seconds; 0: never
    devices: int = 1
    processes: int = 1
    faulty: int = 0
    call: Callable[[], object] | None = None
    start_after: float = 0.0  # seconds, beside others
    learnt: Path | None = None  # a file for the names of what it imported


@dataclass
class End:
    """How a command ended. code: its exit status, minus the signal's number, or None where it hung.

    calls: write calls counted; failed: of those, failed by the fault; trace: a line a call; value: what `call` returned; processes: that
    the log is of.
    """

    code: int | None
    seconds: float
    log: str
    calls: int = 0
    failed: int = 0
    trace: list[str] = field(default_factory=list)
    value: object = None
    processes: int = 1

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    def faults(self) -> list[str]:
        """What no end may show, whatever happened: a traceback, a hang, a crash, or exit code 2 without its one line of error."""
        found = []
        if self.code is None:
            found.append("hang")
        elif self.code not in (0, 2, -signal.SIGKILL, -signal.SIGTERM):
            found.append(f"exit code {self.code}")
        if "Traceback (most recent call last)" in self.log:
            found.append("traceback: " + last_exception(self.log))
        elif (
            self.code == 2
            and not 1 <= sum(line.startswith("error: ") for line in self.log.splitlines()) <= self.processes
        ):
            found.append("exit code 2 without one line of error")
        return found


def last_exception(log: str) -> str:
    """The line that names the exception of a log's last traceback."""
    after = log.rpartition("Traceback (most recent call last)")[2].splitlines()[1:]
    return next((line for line in after if line and not line.startswith(" ")), "?")[:200]
