"""Seconds of a call that a device works off, and the memory of a compiled program."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

ROUNDS = 5


def seconds_a_call(call: Callable[[], Any], wait: Callable[[Any], object], span: float = 1.0) -> float:
    """The median of several rounds of calls, each round begun on an idle device and waited for at its end.

    Args:
      call: starts the work; it was called before, so that nothing is compiled.
      wait: takes what the last call gave, and returns once the device is done.
      span: seconds of all rounds, about; 0: one call is enough.
    """
    wait(call())
    began = time.perf_counter()
    wait(call())
    times = max(1, round(span / ROUNDS / max(time.perf_counter() - began, 1e-6)))
    rounds = []
    for _ in range(ROUNDS if span else 1):
        began, last = time.perf_counter(), None
        for _ in range(times):
            last = call()
        wait(last)
        rounds.append((time.perf_counter() - began) / times)
    return statistics.median(rounds)


def seconds_in_jax(function: Callable[..., Any], *arguments: Any, span: float = 1.0) -> float:
    """Seconds of a call of a jitted function on arrays of the device, compiling left out."""
    return seconds_a_call(lambda: function(*arguments), jax.block_until_ready, span)


def gib_of(compiled: Any) -> float:
    """GiB that a compiled program takes of a device: its arguments, results and all that stands between."""
    usage = compiled.memory_analysis()
    beside = usage.temp_size_in_bytes + usage.output_size_in_bytes - usage.alias_size_in_bytes
    return float(round((usage.argument_size_in_bytes + beside) / 2**30, 4))


def peak_gib() -> float | None:
    """The most GiB that this process has held on its device so far; None where the device does not say, as a CPU."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return round(stats["peak_bytes_in_use"] / 2**30, 3) if "peak_bytes_in_use" in stats else None
