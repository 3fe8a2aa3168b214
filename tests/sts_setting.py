"""STS in the small: an encoder of angles, SentEval's files, and the correlations by their definitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class Angles:
    """An encoder of texts such as "a 30": the vector at that angle, of a length that must not matter."""

    prompts: Mapping[str, str] = {}

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        self.calls.append(list(texts))
        angles = np.radians([float(text.split()[1]) for text in texts])
        lengths = np.arange(1, len(texts) + 1)[:, None]
        return (np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths).astype(np.float32)


def naive_spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """By definition: Pearson's correlation of ranks, where a value's rank counts those below it and half its equals."""

    def ranks(values: Sequence[float]) -> list[float]:
        return [sum(b < a for b in values) + (sum(b == a for b in values) + 1) / 2 for a in values]

    return naive_pearson(ranks(x), ranks(y))


def naive_pearson(a: Sequence[float], b: Sequence[float]) -> float:
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    top = sum((p - mean_a) * (q - mean_b) for p, q in zip(a, b, strict=True))
    return 100 * top / math.sqrt(sum((p - mean_a) ** 2 for p in a) * sum((q - mean_b) ** 2 for q in b))


def write_year(folder: Path, year: int, subset: str, pairs: list[str], gold: list[str]) -> None:
    place = folder / "STS" / f"STS{year}-en-test"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"STS.input.{subset}.txt").write_text("".join(f"{pair}\n" for pair in pairs))
    (place / f"STS.gs.{subset}.txt").write_text("".join(f"{score}\n" for score in gold))
