"""Several texts in a row and no padding: texts are dealt to batches of like length, and their places in a batch found.

A batch's rows have two widths at most: a few long ones for the longest texts and many short ones, since attention's cost
grows with a row's width. N texts, n groups of g texts each, R rows of W tokens, at most K texts in each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from jdistill.core.errors import UserError
from jdistill.data.batching.batches import TokenTable

# Tokens of a row whose attention costs as much as all else of a layer, about: measured on two cores, 384 wide.
COSTLY_WIDTH = 600
SPARE_TEXTS = 2  # that a row may hold beyond what the sample's rows did
BLOCK_COST = 0.01  # of a step, for a further width
MOST_BLOCKS = 2  # a third spares little attention, and its layouts hold fewer batches
SHORT_WIDTHS = (*range(16, 68, 2), 80, 96, 128, 192, 256, 384, 512)  # that are tried, besides the longest text
SAMPLE_GROUPS, MORE_GROUPS = 16, 256  # by which few of the widths are chosen, and of these the layout
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


def deal(lengths: np.ndarray, groups: int) -> np.ndarray:
    """Deals texts to groups of the same number of texts and about the same number of tokens.

    From the longest on, each round gives every group a text, the longest to the group that has the fewest tokens.

    Args:
      lengths: int [N], N a multiple of `groups`. Among texts of one length the order decides, so shuffle them before.

    Returns: int64 [groups, N / groups], each group's longest text first.
    """
    falling = np.argsort(-lengths, kind="stable").reshape(-1, groups)
    totals = np.zeros(groups, np.int64)
    dealt = np.empty_like(falling)
    for number, texts in enumerate(falling):
        fewest = np.argsort(totals, kind="stable")
        dealt[number, fewest] = texts
        totals[fewest] += lengths[texts]
    return dealt.T


def find_places(lengths_nxg: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The row of each text: the fullest one that it fits into.

    Args:
      lengths_nxg: int, falling in each group.

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
        fits &= (after[every, chosen] >= 0) & (left[every, chosen] > 0)
        row[:, text] = chosen
        number[:, text] = -left[every, chosen]
        free[every, chosen] -= length_n
        left[every, chosen] -= 1
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
    most = tuple(int(number[block == k].max(initial=0)) + 1 + SPARE_TEXTS for k in range(len(rows)))
    kept = [k for k, count in enumerate(rows) if count]
    return Layout(tuple(rows[k] for k in kept), tuple(widths[k] for k in kept), tuple(most[k] for k in kept))


@dataclass
class PackedBatches:
    """An endless, seeded, random-access sequence of batches, as Batches is, of texts that are packed.

    Every epoch shuffles anew and deals its texts to batches of the same number of texts and about as many tokens; the last fewer
    than batch_size texts of an epoch sit it out (others the next time). Nearly all batches have one layout; one that it cannot
    hold has a row more.

    Args:
      lengths: int [N], of each text, in tokens.
      batch_size: texts of a batch.
      count: of groups in a batch, which are packed each by itself, so that devices and chunks can share it; divides batch_size.
      seed: of the order.
      multiple: of which each width is one.

    Raises: UserError where the texts do not fill a batch.
    """

    lengths: np.ndarray
    batch_size: int
    count: int
    seed: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if len(self.lengths) < self.batch_size:
            raise UserError(
                f"{len(self.lengths)} training texts do not fill one batch of batch_size={self.batch_size}; "
                "lower --config.batch_size or bring more text"
            )
        self._epoch = -1
        sample = range(min(self.steps_per_epoch, -(-MORE_GROUPS // self.count)))
        grouped = np.concatenate([self._rows_of(step).reshape(self.count, -1) for step in sample])
        self.layout = choose_layout(self.lengths[grouped], int(self.lengths.max()), self.multiple)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of an epoch."""
        return len(self.lengths) // self.batch_size

    @property
    def real_tokens(self) -> np.ndarray:
        """Tokens of each text, int [N]."""
        return self.lengths

    @property
    def groups(self) -> None:
        """All texts may share a batch."""
        return None

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the rows, in tokens."""
        return self.layout.widths

    @property
    def padding(self) -> float:
        """The share of a batch's places that hold padding, over an epoch of the layout that nearly all batches have."""
        return 1.0 - float(self.lengths.mean()) * self.batch_size / self.capacity(self.layout)

    def capacity(self, layout: Layout) -> int:
        """Tokens of a batch, padding included."""
        return layout.capacity * self.count

    def at(self, step: int) -> tuple[Layout, np.ndarray]:
        """The batch of step 0, 1, …: its layout and its texts, group after group, int64 [batch_size]."""
        rows = self._rows_of(step)
        lengths_nxg, layout = self.lengths[rows.reshape(self.count, -1)], self.layout
        while not find_places(lengths_nxg, layout)[2].all():
            layout = layout.longer()
        return layout, rows

    def shapes_used(self) -> list[Layout]:
        """The layouts that a stage compiles for, the commonest first."""
        return [self.layout]

    def _rows_of(self, step: int) -> np.ndarray:
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            rng = np.random.default_rng([self.seed, epoch])
            taken = rng.permutation(len(self.lengths))[: self.steps_per_epoch * self.batch_size]
            dealt = taken[deal(self.lengths[taken], self.steps_per_epoch)]
            self._batches, self._epoch = dealt[rng.permutation(len(dealt))], epoch
        rows = self._batches[index]
        return rows[deal(self.lengths[rows], self.count)].ravel()


def pack_texts(tokens: TokenTable, rows_nxg: np.ndarray, layout: Layout, pad_id: int) -> dict[str, np.ndarray]:
    """Groups of texts as arrays.

    Args:
      rows_nxg: int64, numbers of texts, falling in length in each group, which the layout holds.

    Returns: for each block of the layout "ids_0", "ids_1", … int32 [n, R, W], and "lengths_0", "lengths_1", … int32 [n, R, K], of the
      texts that stand in a row one after another; and "place" int32 [n, g], a text's number among the K texts of all rows.
    """
    lengths_nxg = tokens.lengths[rows_nxg]
    row, number, fits = find_places(lengths_nxg, layout)
    if not fits.all():
        raise ValueError(f"{layout} does not hold {lengths_nxg.sum(1).max()} tokens of a group")
    n, g = rows_nxg.shape
    first_row = np.concatenate([[0], np.cumsum(layout.rows)])
    first_place = np.concatenate([[0], np.cumsum(np.multiply(layout.rows, layout.most))])
    place = np.zeros((n, g), np.int64)
    out: dict[str, np.ndarray] = {}
    for k, (count, width, most) in enumerate(zip(layout.rows, layout.widths, layout.most, strict=True)):
        group, text = np.nonzero((row >= first_row[k]) & (row < first_row[k + 1]))
        r, which = row[group, text] - first_row[k], number[group, text]
        lengths = np.zeros((n, count, most), np.int32)
        lengths[group, r, which] = lengths_nxg[group, text]
        start = (np.cumsum(lengths, axis=2) - lengths)[group, r, which]
        ids = np.full((n, count, width), pad_id, np.int32)
        long = lengths_nxg[group, text]
        within = np.arange(long.sum()) - np.repeat(np.cumsum(long) - long, long)
        to = np.repeat((group * count + r) * width + start, long) + within
        ids.reshape(-1)[to] = tokens.ids[np.repeat(tokens.offsets[rows_nxg[group, text]], long) + within]
        place[group, text] = first_place[k] + r * most + which
        out |= {f"ids_{k}": ids, f"lengths_{k}": lengths}
    return out | {"place": place.astype(np.int32)}
