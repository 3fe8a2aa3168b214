"""Prompts that begin alike in one sequence: what they share is computed once, and none sees another's end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

PACKED_TOKENS = 512  # tokens of a sequence that holds several ends: attention grows with the square
PACKED_ENDS = 16  # ends of a sequence


@dataclass
class Packed:
    """A sequence of prompts that begin alike.

    Args:
      tokens: of the sequence.
      segments: of each token, 0 for the shared beginning, k for the k-th end.
      positions: of each token in its own prompt.
      ends: the place of the last token of each prompt.
      prompts: which ones.
    """

    tokens: list[int]
    segments: list[int]
    positions: list[int]
    ends: list[int] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)

    def add(self, prompt: int, end: Sequence[int]) -> None:
        """Adds the prompt of this number, whose end is these tokens."""
        shared = self.segments.count(0)
        self.tokens += end
        self.segments += [len(self.ends) + 1] * len(end)
        self.positions += range(shared, shared + len(end))
        self.ends.append(len(self.tokens) - 1)
        self.prompts.append(prompt)


def pack(beginnings: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]) -> list[Packed]:
    """Prompts in sequences; those of the same beginning share sequences of at most PACKED_TOKENS tokens and PACKED_ENDS ends, about as many in
    each, or stand alone.

    Args:
      beginnings, ends: token ids, prompt i being beginnings[i] + ends[i]; no end is empty.
    """
    alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, beginning in enumerate(beginnings):
        alike[tuple(beginning)].append(i)
    sequences: list[Packed] = []
    for beginning, prompts in alike.items():
        tokens = sum(len(ends[i]) for i in prompts)
        count = max(math.ceil(tokens / max(PACKED_TOKENS - len(beginning), 1)), math.ceil(len(prompts) / PACKED_ENDS))
        most = math.ceil(len(prompts) / count)
        packed = None
        for i in prompts:
            if packed is None or len(packed.tokens) + len(ends[i]) > PACKED_TOKENS or len(packed.ends) == most:
                packed = Packed(list(beginning), [0] * len(beginning), list(range(len(beginning))))
                sequences.append(packed)
            packed.add(i, ends[i])
    return sequences


def padded(sequences: Sequence[Packed], height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Segments, positions and ends of sequences as arrays.

    Args:
      height, width: of a batch; sequences are at most so many, and so long.

    Returns: segments and positions, int32 [height, width], and ends, int32 [height, PACKED_ENDS], 0 where there is none.
    """
    segments, positions = np.zeros((2, height, width), np.int32)
    ends = np.zeros((height, PACKED_ENDS), np.int32)
    for r, packed in enumerate(sequences):
        segments[r, : len(packed.segments)] = packed.segments
        positions[r, : len(packed.positions)] = packed.positions
        ends[r, : len(packed.ends)] = packed.ends
    return segments, positions, ends
