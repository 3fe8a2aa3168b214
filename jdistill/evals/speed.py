"""Size and speed of encoders: parameters, bytes, and the time of one text at a time, models taking turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np


class Timed(Protocol):
    """What is measured of an encoder; jdistill's own, and what bench/ wraps torch and ONNX Runtime in."""

    @property
    def num_params(self) -> int:
        """How many numbers are trained in it."""

    def encode(self, texts: Sequence[str], *, batch_size: int) -> np.ndarray:
        """The vectors of texts, [N, D], in the order given, `batch_size` of them at a time."""


def size(encoder: Timed) -> dict[str, int]:
    """{"num_params": …, "bytes": …}; bytes as float32, whatever type it computes in."""
    return {"num_params": encoder.num_params, "bytes": 4 * encoder.num_params}


def latency_ms(encoder: Timed, texts: Sequence[str]) -> float:
    """Median milliseconds of encoding one text, tokenisation included, each text once, after a warm-up pass."""
    _pass_ms(encoder, texts)
    return float(np.median(_pass_ms(encoder, texts)))


def pass_medians_ms(encoder: Timed, texts: Sequence[str], repeats: int) -> list[float]:
    """As latency_ms, of each of several passes: how far they lie apart says what else the machine did."""
    _pass_ms(encoder, texts)
    return [float(np.median(_pass_ms(encoder, texts))) for _ in range(repeats)]


def compare_speed(
    encoders: Mapping[str, Timed], texts: Sequence[str], repeats: int, framework: str = "flax"
) -> list[dict[str, Any]]:
    """Parameters and speed of models that take turns, one row a model.

    Each makes one pass over the texts, `repeats` times, every other time in reverse order, so that what else the machine does meets
    all of them. The first pass of each, in which every length is compiled, is not counted.

    Args:
      encoders: by name.
      framework: what they run in, for the rows.

    Returns: model, framework, num_params, bytes; latency_ms of one text, tokenisation included: the median over texts of the median
      over passes; pass_s, seconds of a whole pass, median over passes; ratio, pass_ratio: times as fast as the first model, by either.
    """
    if not texts or repeats < 1:
        raise ValueError(f"{len(texts)} texts, {repeats} repeats: at least one of each is needed")
    names = list(encoders)
    for name in names:
        _pass_ms(encoders[name], texts)
    taken: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for repeat in range(repeats):
        for name in names if repeat % 2 == 0 else names[::-1]:
            taken[name].append(_pass_ms(encoders[name], texts))
    text_ms = {name: float(np.median(np.median(taken[name], axis=0))) for name in names}
    pass_s = {name: float(np.median(np.sum(taken[name], axis=1))) / 1000 for name in names}
    return [
        {"model": name, "framework": framework}
        | size(encoders[name])
        | {
            "latency_ms": text_ms[name],
            "ratio": text_ms[names[0]] / text_ms[name],
            "pass_s": pass_s[name],
            "pass_ratio": pass_s[names[0]] / pass_s[name],
        }
        for name in names
    ]


def _pass_ms(encoder: Timed, texts: Sequence[str]) -> np.ndarray:
    """Milliseconds of each text, float64 [N]."""
    taken = np.empty(len(texts))
    for i, text in enumerate(texts):
        start = time.perf_counter()
        encoder.encode([text], batch_size=1)
        taken[i] = 1000 * (time.perf_counter() - start)
    return taken


def per_second(run: Callable[[], object], count: int) -> float:
    """How many of `count` things a second, compiling left out."""
    run()
    began = time.perf_counter()
    run()
    return count / (time.perf_counter() - began)
