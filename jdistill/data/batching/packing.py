"""Several texts in a row and no padding: texts are dealt to batches of like length, and laid out in rows.

N texts, n groups of g texts each, R rows of W tokens, at most K texts in each. What a batch counts may be more than a text: a triplet has C,
which stay in one group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jdistill.core.errors import UserError
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.layout import Layout, choose_layout, find_places
from jdistill.data.batching.order import EpochOrder, EpochRows

LAYOUT_GROUPS = 256  # of texts, by which the layout is chosen


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


@dataclass
class PackedBatches:
    """An endless, seeded, random-access sequence of batches, as Batches is, of texts that are packed.

    Every epoch shuffles anew and deals its texts to batches of the same number of texts and about as many tokens; the last fewer
    than batch_size texts of an epoch sit it out (others the next time). Of more than order.LARGE texts a window of the order is dealt at a
    time. Nearly all batches have one layout; one that it cannot hold has a row more.

    Args:
      lengths: int [N], of each text, in tokens.
      batch_size: texts of a batch.
      count: of groups in a batch, which are packed each by itself, so that devices and chunks can share it; divides batch_size.
      seed: of the order.
      multiple: of which each width is one.
      of_epoch: which texts an epoch has; None: each once.
      parts: int [N, C], of what is counted as one text, such as a triplet, the tokens of each of its C texts, -1 where it has none. None: it
        is one text.

    Raises: UserError where the texts do not fill a batch.
    """

    lengths: np.ndarray
    batch_size: int
    count: int
    seed: int
    multiple: int = 1
    of_epoch: EpochRows | None = None
    parts: np.ndarray | None = None

    def __post_init__(self) -> None:
        rows = len(self.lengths) if self.of_epoch is None else self.of_epoch.count
        if rows < self.batch_size:
            raise UserError(
                f"{rows} training texts do not fill one batch of batch_size={self.batch_size}; "
                "lower --config.batch_size or bring more text"
            )
        self._order = EpochOrder(rows, self.batch_size, self.seed, of_epoch=self.of_epoch)
        self._window = (-1, 0)
        sample = range(min(self.steps_per_epoch, -(-LAYOUT_GROUPS // self.count)))
        grouped = np.concatenate([self._rows_of(step).reshape(self.count, -1) for step in sample])
        self._tokens = float(self.lengths[grouped].sum()) / len(sample)  # of a batch
        longest = self.lengths if self.parts is None else self.parts
        self.layout = choose_layout(self._to_place(grouped), int(longest.max()), self.multiple)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of an epoch."""
        return self._order.count // self.batch_size

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
        """The share of a batch's places that hold padding, over the batches by which the layout was chosen."""
        return 1.0 - self._tokens / self.capacity(self.layout)

    def capacity(self, layout: Layout) -> int:
        """Tokens of a batch, padding included."""
        return layout.capacity * self.count

    def at(self, step: int) -> tuple[Layout, np.ndarray]:
        """The batch of step 0, 1, …: its layout and its texts, group after group, int64 [batch_size]."""
        rows = self._rows_of(step)
        lengths_nxg, layout = self._to_place(rows.reshape(self.count, -1)), self.layout
        while not find_places(lengths_nxg, layout)[2].all():
            layout = layout.longer()
        return layout, rows

    def shapes_used(self) -> list[Layout]:
        """The layouts that a stage compiles for, the commonest first."""
        return [self.layout]

    def _to_place(self, rows_nxg: np.ndarray) -> np.ndarray:
        """Tokens of each text of these groups, which are dealt, falling in each group: int [n, g] or [n, g C]."""
        if self.parts is None:
            return self.lengths[rows_nxg]
        return -np.sort(-self.parts[rows_nxg].reshape(len(rows_nxg), -1), axis=1)

    def _rows_of(self, step: int) -> np.ndarray:
        rows = self.members(step)
        return rows[deal(self.lengths[rows], self.count)].ravel()

    def members(self, step: int) -> np.ndarray:
        """The texts of the batch, int64 [batch_size], before they are dealt to groups."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        window, index = self._order.window_of(batch)
        if (epoch, window) != self._window:
            order, rng = self._order.rows_of(epoch, window)
            batches = len(order) // self.batch_size
            taken = order[: batches * self.batch_size]
            dealt = taken[deal(self.lengths[taken], batches)]
            self._batches, self._window = dealt[rng.permutation(batches)], (epoch, window)
        rows: np.ndarray = self._batches[index]
        return rows


def pack_texts(tokens: TokenTable, rows_nxg: np.ndarray, layout: Layout, pad_id: int) -> dict[str, np.ndarray]:
    """Groups of texts as arrays.

    Args:
      rows_nxg: int64, numbers of texts, falling in length in each group, which the layout holds; -1: there is none.

    Returns: for each block of the layout "ids_0", "ids_1", … int32 [n, R, W], and "lengths_0", "lengths_1", … int32 [n, R, K], of the
      texts that stand in a row one after another; and "place" int32 [n, g], a text's number among the K texts of all rows.
    """
    lengths_nxg = _lengths(tokens, rows_nxg)
    row, number, fits = find_places(lengths_nxg, layout)
    if not fits.all():
        raise ValueError(f"{layout} does not hold {lengths_nxg.sum(1).max()} tokens of a group")
    n, g = rows_nxg.shape
    first_row = np.concatenate([[0], np.cumsum(layout.rows)])
    first_place = np.concatenate([[0], np.cumsum(np.multiply(layout.rows, layout.most))])
    place = np.zeros((n, g), np.int64)
    out: dict[str, np.ndarray] = {}
    for k, (count, width, most) in enumerate(zip(layout.rows, layout.widths, layout.most, strict=True)):
        group, text = np.nonzero((lengths_nxg >= 0) & (row >= first_row[k]) & (row < first_row[k + 1]))
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


def pack_parts(tokens: TokenTable, texts_nxgxC: np.ndarray, layout: Layout, pad_id: int) -> dict[str, np.ndarray]:
    """Groups of rows of C texts as arrays, those of a row in one group.

    Args:
      texts_nxgxC: int64, numbers of texts in any order, which the layout holds; -1: there is none.

    Returns: as pack_texts, but "place" int32 [n, g, C].
    """
    texts_nxT = texts_nxgxC.reshape(len(texts_nxgxC), -1)
    falling = np.argsort(-_lengths(tokens, texts_nxT), axis=1, kind="stable")
    arrays = pack_texts(tokens, np.take_along_axis(texts_nxT, falling, axis=1), layout, pad_id)
    place = np.empty_like(arrays["place"])
    np.put_along_axis(place, falling, arrays["place"], axis=1)
    return arrays | {"place": place.reshape(texts_nxgxC.shape)}


def _lengths(tokens: TokenTable, texts: np.ndarray) -> np.ndarray:
    """Tokens of these texts, int64, of the shape of their numbers; -1 for -1."""
    return np.where(texts < 0, -1, tokens.lengths_of(np.maximum(texts, 0)))
