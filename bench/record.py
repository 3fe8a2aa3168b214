"""How a bench's figures were made: command, commit, machine and its load, as every file of bench/results says it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def commit() -> str:
    """The checkout's commit, shortened; empty where there is no git or no checkout."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    if shutil.which(asked[0]) is None:
        return ""
    return subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()


def processor() -> str:
    """The processor's model and how many cores of it are ours."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores"


def made_by(command: str, **more: Any) -> dict[str, Any]:
    """What a results file begins with.

    Args:
      command: that makes it again.
      more: further keys, such as seed.
    """
    load = f"{os.getloadavg()[2]:.1f} processes on average in the last 15 minutes, its own among them"
    return {"command": command, "commit": commit(), "machine": processor()} | more | {"load": load}
