"""The rows that packed texts stand in: which layouts hold a group of texts, and which of them makes a step cheapest.

Rows have two widths at most: a few long ones for the longest texts and many short ones, since attention's cost grows with
a row's width. n groups of g texts each, R rows of W tokens, at most K texts in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

# Tokens of a row whose attention costs as much as all else of a layer, about: measured on two cores, 384 wide.
COSTLY_WIDTH = 600
SPARE_TEXTS = 2  # that a row may hold beyond what the sample's rows did
BLOCK_COST = 0.01  # of a step, for a further width
MOST_BLOCKS = 2  # a third spares little attention, and its layouts hold fewer batches
SHORT_WIDTHS = (*range(16, 68, 2), 80, 96, 128, 192, 256, 384, 512)  # that are tried, besides the longest text
SAMPLE_GROUPS = 16  # by which few of the widths are chosen
FEW = 4


@dataclass(frozen=True)
class Layout:
    """The rows of a group of texts: blocks of rows of one width, wide ones first.

    Args:
      rows: of each block.
      widths: of each block's rows, in tokens.
      most: how many texts a row of each block holds at most.
    """

    rows: tuple[int, ...]
    widths: tuple[int, ...]
    most: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """Tokens that fit, padding included."""
        return sum(count * width for count, width in zip(self.rows, self.widths, strict=True))

    def longer(self) -> Layout:
        """The same with one more row of the widest, which takes whatever did not fit."""
        return Layout((self.rows[0] + 1, *self.rows[1:]), self.widths, self.most)


def find_places(lengths_nxg: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The row of each text: the fullest one that it fits into.

    Args:
      lengths_nxg: int, falling in each group; -1: there is no such text, and it takes no place.

    Returns: the row, int [n, g], counted over all blocks; the number of the text in its row, int [n, g]; whether all fit, bool [n].
    """
    n = len(lengths_nxg)
    free = np.repeat(np.repeat(layout.widths, layout.rows)[None], n, axis=0)
    left = np.repeat(np.repeat(layout.most, layout.rows)[None], n, axis=0)
    row, number = np.zeros(lengths_nxg.shape, np.int64), np.zeros(lengths_nxg.shape, np.int64)
    fits, every = np.ones(n, bool), np.arange(n)
    full = np.iinfo(np.int64).max
    for text, length_n in enumerate(lengths_nxg.T):
        after = free - length_n[:, None]
        chosen = np.where((after >= 0) & (left > 0), after, full).argmin(1)
        there = length_n >= 0
        fits &= ~there | ((after[every, chosen] >= 0) & (left[every, chosen] > 0))
        row[:, text] = chosen
        number[:, text] = -left[every, chosen]
        free[every, chosen] -= np.maximum(length_n, 0)
        left[every, chosen] -= there
    return row, number + np.repeat(layout.most, layout.rows)[row], fits


def choose_layout(lengths_nxg: np.ndarray, longest: int, multiple: int) -> Layout:
    """The layout whose step is cheapest, by its tokens and the width of their rows, of those that hold every group.

    Args:
      lengths_nxg: int, a sample of groups, falling in each.
      longest: of all texts, in tokens.
      multiple: of which each width is one.
    """
    longest = -(-longest // multiple) * multiple
    narrow = sorted({-(-width // multiple) * multiple for width in SHORT_WIDTHS} - {longest}, reverse=True)
    narrow = [width for width in narrow if width < longest]
    tried = [(longest, *some) for count in range(MOST_BLOCKS) for some in combinations(narrow, count)]
    by_sample = sorted(tried, key=lambda widths: _cost(_smallest(lengths_nxg[:SAMPLE_GROUPS], widths)))
    return min((_smallest(lengths_nxg, widths) for widths in by_sample[:FEW]), key=_cost)


def _cost(layout: Layout) -> float:
    return sum(r * w * (1 + w / COSTLY_WIDTH) for r, w in zip(layout.rows, layout.widths, strict=True)) * (
        1 + BLOCK_COST * len(layout.rows)
    )


def _smallest(lengths_nxg: np.ndarray, widths: tuple[int, ...]) -> Layout:
    """The fewest rows of these falling widths that hold every group: of each width, as many as the texts need that fit no narrower."""
    g = lengths_nxg.shape[1]
    rows: tuple[int, ...] = ()
    for k, width in enumerate(widths):
        narrower = widths[k + 1] if k + 1 < len(widths) else 0
        texts = np.where(lengths_nxg > narrower, lengths_nxg, 0)
        room = sum(r * w for r, w in zip(rows, widths, strict=False))
        count = max(0 if rows else 1, -(-(int(texts.sum(1).max()) - room) // width))
        while not find_places(texts, Layout((*rows, count), widths[: k + 1], (g,) * (k + 1)))[2].all():
            count += 1
        rows = (*rows, count)
    row, number, _ = find_places(lengths_nxg, Layout(rows, widths, (g,) * len(rows)))
    block = np.repeat(np.arange(len(rows)), rows)[row]
    most = tuple(
        int(number[(block == k) & (lengths_nxg >= 0)].max(initial=0)) + 1 + SPARE_TEXTS for k in range(len(rows))
    )
    kept = [k for k, count in enumerate(rows) if count]
    return Layout(tuple(rows[k] for k in kept), tuple(widths[k] for k in kept), tuple(most[k] for k in kept))
