"""Texts of a query in a few sequences: a decoder reads a query's passages end to end, none seeing another, and little is padding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jdistill.data.sets.triplets import TripletTokens

SEQUENCE_TOKENS = 128  # tokens of a sequence, about: attention grows with its square


@dataclass(frozen=True)
class PackedRows:
    """Rows of T texts, each row in R sequences of S tokens, about `longest`. The lists of a query and its 14 candidates, each padded to the longest,
    would be half padding: a row's longest text is twice its mean."""

    tokens: TripletTokens
    multiple: int = 1  # of which S is one
    longest: int = SEQUENCE_TOKENS

    @cached_property
    def text_lengths(self) -> np.ndarray:
        """int64 [N, T], 0 where there is no text."""
        return np.maximum(self.tokens.text_lengths, 0)

    @cached_property
    def sequences(self) -> int:
        """R: as many as a row of mean length needs."""
        return min(math.ceil(self.text_lengths.sum(1).mean() / self.longest), self.text_lengths.shape[1])

    @cached_property
    def _bins(self) -> tuple[np.ndarray, np.ndarray]:
        """The sequence of each text, int64 [N, T], and its first place there: the longest text first, each into the emptiest."""
        lengths = self.text_lengths
        rows = np.arange(len(lengths))
        filled = np.zeros((len(lengths), self.sequences), np.int64)
        which, first = np.zeros_like(lengths), np.zeros_like(lengths)
        for place in np.argsort(-lengths, axis=1, kind="stable").T:
            emptiest = filled.argmin(1)
            which[rows, place], first[rows, place] = emptiest, filled[rows, emptiest]
            filled[rows, emptiest] += lengths[rows, place]
        return which, first

    @property
    def lengths(self) -> np.ndarray:
        """Places that a row takes, R times what its fullest sequence asks for: int64 [N]."""
        _, first = self._bins
        return self.sequences * -(-(first + self.text_lengths).max(1) // self.multiple) * self.multiple

    def padded(self, rows: np.ndarray, width: int, pad_id: int) -> dict[str, np.ndarray]:
        """int32 [n, R, S], S = width / R rounded down to `multiple`: ids; segments, t + 1 of text t and 0 in padding; positions in the text.
        real bool [n, T] and texts int32 [n, T] as TripletTokens.padded has them."""
        shape = (len(rows), self.sequences, width // self.sequences // self.multiple * self.multiple)
        ids, segments, positions = (
            np.full(shape, pad_id, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
        )
        which, first = self._bins
        columns = self.tokens.columns[rows]
        for r, row in enumerate(rows):
            texts = self.tokens.anchors.lists(row[None]) + self.tokens.passages.lists(np.maximum(columns[r], 0))
            for t, text in enumerate(texts):
                if t == 0 or columns[r, t - 1] >= 0:
                    start = first[row, t]
                    here = (r, which[row, t], slice(start, start + len(text)))
                    ids[here], segments[here], positions[here] = text, t + 1, np.arange(len(text))
        return {"ids": ids, "segments": segments, "positions": positions} | self.tokens.which(rows)
