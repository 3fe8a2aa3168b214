"""What every client of bench/servers.py measures, with nothing but numpy beside the server's own library.

A client is run in an environment of its own as `python CLIENT FOLDER WORK [ARGUMENTS]`: FOLDER is the exported student, WORK/texts.json the
sentences. It leaves WORK/vectors.npy and WORK/times.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ALONE = 200  # sentences that are encoded one at a time

FOLDER, WORK = Path(sys.argv[1]), Path(sys.argv[2])


def texts() -> list[str]:
    """The bench's sentences."""
    return json.loads((WORK / "texts.json").read_text())


def measure(encode: Callable[[list[str], int], Any], *libraries: str, server: int = 0) -> None:
    """Times an encoder and keeps its vectors.

    Args:
      encode: (texts, so many at a time) -> their vectors, [N, D].
      libraries: distributions whose versions are noted.
      server: the process that encodes, whose memory counts; 0: this one.
    """
    asked = texts()
    encode(asked[:64], 32)  # which loads, traces or compiles what is done once
    began = time.perf_counter()
    vectors = np.asarray(encode(asked, 32), np.float32)
    together = time.perf_counter() - began
    began = time.perf_counter()
    for text in asked[:ALONE]:
        encode([text], 1)
    alone = time.perf_counter() - began
    np.save(WORK / "vectors.npy", vectors)
    figures = {
        "sentences_per_s_batch_32": len(asked) / together,
        "sentences_per_s_batch_1": min(ALONE, len(asked)) / alone,
        "peak_mb": _peak_kb(server or os.getpid()) / 1e3,
        "versions": {name: metadata.version(name) for name in libraries},
    }
    (WORK / "times.json").write_text(json.dumps(figures))


def _peak_kb(process: int) -> int:
    """The most memory that a process has held."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
