"""Prompts that begin alike in one sequence: what they share is computed once, and none sees another's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

LONGEST = 512  # tokens of a sequence that holds several ends: attention grows with the square
MOST = 16  # ends of a sequence


@dataclass
class Packed:
    """segments: 0 for the shared beginning, k for the k-th end. positions: of each token in its own prompt. ends: the last token of each
    prompt; prompts: which ones."""

    tokens: list[int]
    segments: list[int]
    positions: list[int]
    ends: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)

    def add(self, prompt: int, end: Sequence[int]) -> None:
        """One more prompt with this end."""
        shared = self.segments.count(0)
        self.tokens += end
        self.segments += [len(self.ends) + 1] * len(end)
        self.positions += range(shared, shared + len(end))
        self.ends.append(len(self.tokens) - 1)
        self.prompts.append(prompt)


def pack(beginnings: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]) -> list[Packed]:
    """Prompt i is beginnings[i] + ends[i], and its end is not empty; prompts of the same beginning share sequences of at most LONGEST tokens
    and MOST ends, or stand alone."""
    open_ones: dict[tuple[int, ...], Packed] = {}
    found: list[Packed] = []
    for i, (beginning, end) in enumerate(zip(beginnings, ends, strict=True)):
        key = tuple(beginning)
        packed = open_ones.get(key)
        if packed is None or len(packed.tokens) + len(end) > LONGEST or len(packed.ends) == MOST:
            packed = Packed(list(key), [0] * len(key), list(range(len(key))))
            open_ones[key] = packed
            found.append(packed)
        packed.add(i, end)
    return found


def padded(sequences: Sequence[Packed], height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Their segments and positions, int32 [height, width], and ends, int32 [height, MOST], 0 where there is none."""
    segments, positions = np.zeros((2, height, width), np.int32)
    ends = np.zeros((height, MOST), np.int32)
    for r, packed in enumerate(sequences):
        segments[r, : len(packed.segments)] = packed.segments
        positions[r, : len(packed.positions)] = packed.positions
        ends[r, : len(packed.ends)] = packed.ends
    return segments, positions, ends
