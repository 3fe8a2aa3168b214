"""Runs a part of the GPU bench in a process of its own, and says how it ended; what it had measured by then is kept."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu.parts import ENOUGH, Part, Row, Setting
from jdistill.core.errors import first_line
from jdistill.core.memory import keep_freed_memory

GONE = 10.0  # seconds that a stopped process is given to be gone


def run_part(part: Part, setting: Setting, end: float, fork: bool = False) -> tuple[Row, list[Row]]:
    """Runs a part until it is over, or until its limit or the end of all.

    Args:
      part: what to run.
      setting: of all parts; the deadline is the part's own.
      end: of all parts, by time.monotonic.
      fork: start it as a copy of this process, which saves its imports; this process must not have touched a device. Else anew.

    Returns: how it went, and the rows that it measured.
    """
    began = time.monotonic()
    allowed = min(part.limit, end - began)
    about: Row = {"part": part.name, "asks": part.asks}
    if allowed < ENOUGH:
        return about | {"seconds": 0.0, "rows": 0, "end": f"not begun: {max(allowed, 0):.0f} s were left"}, []
    rows_file = setting.folder / f"{part.name}.jsonl"
    rows_file.unlink(missing_ok=True)
    processes: Any = multiprocessing.get_context("fork" if fork else "spawn")
    child = processes.Process(target=measure, args=(part, replace(setting, deadline=began + allowed), rows_file))
    child.start()
    assert child.pid
    child.join(allowed)
    if stopped := child.is_alive():
        child.kill()
    with suppress(ProcessLookupError):  # nothing is left of what it started
        os.killpg(child.pid, signal.SIGKILL)
    child.join(GONE)
    rows = [json.loads(line) for line in whole_lines(rows_file)]
    about |= {"seconds": round(time.monotonic() - began, 1), "rows": len(rows)}
    return about | {"end": _ending(f"stopped after {allowed:.0f} s" if stopped else "", child.exitcode, rows)}, rows


def _ending(stopped: str, code: int | None, rows: list[Row]) -> str:
    """How a part ended, in words; "whole" where nothing was lost."""
    if stopped:
        return stopped
    if code:
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    lost = [
        f"{count} of {len(rows)} rows {key}" for key in ("failed", "left") if (count := sum(key in r for r in rows))
    ]
    return ", ".join(lost) or "whole"


def whole_lines(file: Path) -> list[str]:
    """The lines of a file that were written to their end; none where there is no file."""
    return file.read_text().rpartition("\n")[0].splitlines() if file.is_file() else []


def measure(part: Part, setting: Setting, rows_file: Path) -> None:
    """What a part's process does: its cells one after another, a line of JSON each."""
    os.setsid()  # so that what it starts is stopped with it
    if not part.peer:
        keep_freed_memory()
    try:
        for cell in part.cells(setting):
            if not setting.toy and setting.seconds_left() < cell.seconds:
                row = {"left": f"{setting.seconds_left():.0f} s were left, and it takes about {cell.seconds:.0f}"}
            else:
                try:
                    row = cell.measure()
                except Exception as error:  # whatever it is, the next row may go well
                    row = {"failed": f"{type(error).__name__}: {first_line(error)[:300]}"}
            write_row(rows_file, cell.labels | row, part.name)
    except Exception as error:  # before a cell: a module that is missing, say
        write_row(rows_file, {"failed": f"{type(error).__name__}: {first_line(error)[:300]}"}, part.name)
    sys.stdout.flush()
    os._exit(0)  # with a device and threads of several libraries a tidy end may hang


def write_row(file: Path, row: Row, name: str) -> None:
    """Appends a row to a part's file, and shows it."""
    with file.open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    print(name, json.dumps(row), flush=True)
