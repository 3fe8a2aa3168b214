"""Batches: tokenised texts, bucketed by length, in a seeded order whose position is just the step number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.mapped import release, slices_of
from jdistill.data.batching.order import WINDOW, EpochOrder, EpochRows


@dataclass(frozen=True)
class TokenTable:
    """Token ids of N texts in one flat array: text i is ids[offsets[i]:offsets[i + 1]].

    Args:
      ids: uint16 or int32 [sum of lengths], memory-mapped.
      offsets: int64 [N + 1].
      kept_lengths: int32 [N], memory-mapped, of a table whose lengths are not to be computed.
    """

    ids: np.ndarray  # uint16 or int32 [sum of lengths], memory-mapped
    offsets: np.ndarray  # int64 [N + 1]
    kept_lengths: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, int64 or int32 [N]."""
        return np.diff(self.offsets) if self.kept_lengths is None else self.kept_lengths

    def release(self) -> None:
        """Takes what was read of the files out of resident memory."""
        release(self.ids, self.offsets, self.kept_lengths)

    def counts(self, pieces: int) -> np.ndarray:
        """How often each id below `pieces` stands in the texts, int64 [pieces]; read a block at a time."""
        counts = np.zeros(pieces, np.int64)
        for block in slices_of(len(self.ids), WINDOW):
            counts += np.bincount(self.ids[block], minlength=pieces)[:pieces]
        self.release()
        return counts

    def lengths_of(self, rows: np.ndarray) -> np.ndarray:
        """Tokens of these texts, int64, of the shape of their rows."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def lists(self, rows: np.ndarray) -> list[list[int]]:
        """The token ids of these texts."""
        return [self.ids[self.offsets[i] : self.offsets[i + 1]].tolist() for i in rows]

    def some(self, count: int) -> TokenTable:
        """`count` of these texts, evenly spaced, in memory; all of them where there are no more."""
        rows = np.unique(np.linspace(0, len(self) - 1, min(count, len(self))).astype(np.int64))
        chosen, lengths = self.lists(rows), self.lengths_of(rows)
        ids = np.fromiter((token for ids in chosen for token in ids), self.ids.dtype, int(lengths.sum()))
        return TokenTable(ids, np.concatenate([[0], np.cumsum(lengths)]))

    def joined(self, other: TokenTable) -> TokenTable:
        """These texts and after them the other's, in memory."""
        return TokenTable(
            np.concatenate([self.ids, other.ids]), np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]])
        )

    def padded(self, rows: np.ndarray, width: int, pad_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Some texts as arrays.

        Args:
          rows: int64 [n], numbers of texts.
          width: of the arrays, in tokens; no text is longer.
          pad_id: what stands behind a text's own tokens.

        Returns: token ids int32 [n, width], and their mask, bool of the same shape, true for tokens.
        """
        columns = np.arange(width)
        mask = columns < self.lengths_of(rows)[:, None]
        ids = np.full(mask.shape, pad_id, np.int32)
        ids[mask] = self.ids[(self.offsets[rows][:, None] + columns)[mask]]
        return ids, mask


def check_rows(**counts: int) -> None:
    """Raises ValueError where tables that meet row by row have different numbers of rows."""
    if len(set(counts.values())) > 1:
        raise ValueError(f"tables of one stage differ in their rows: {counts}")


def choose_buckets(lengths: np.ndarray, count: int, multiple: int) -> tuple[int, ...]:
    """At most `count` widths, each a multiple of `multiple`, that make the padding of these lengths smallest.

    Exact, by dynamic programming over the histogram: cost(i, j) = padding when widths i+1..j all become j.

    Args:
      lengths: int [N], in tokens.

    Returns: widths in tokens, rising.
    """
    texts = np.zeros(-(-int(lengths.max(initial=0)) // multiple) + 1, np.int64)
    for block in slices_of(len(lengths), WINDOW):
        texts += np.bincount(-(-lengths[block] // multiple), minlength=len(texts))
    n = len(texts) - 1
    count = min(count, n)
    total = np.concatenate([[0], np.cumsum(texts)])  # total[j + 1] - total[i + 1]: texts of i < units <= j
    weighted = np.concatenate([[0], np.cumsum(texts * np.arange(n + 1))])
    best = np.full((count + 1, n + 1), np.inf)
    best[0, 0] = 0
    previous = np.zeros((count + 1, n + 1), int)
    for k in range(1, count + 1):
        for j in range(1, n + 1):
            i = np.arange(j)
            cost = best[k - 1, :j] + j * (total[j + 1] - total[i + 1]) - (weighted[j + 1] - weighted[i + 1])
            previous[k, j] = int(np.argmin(cost))
            best[k, j] = cost[previous[k, j]]
    k, j, widths = int(np.argmin(best[:, n])), n, []
    while j > 0:
        widths.append(j * multiple)
        k, j = k - 1, previous[k, j]
    return tuple(reversed(widths))


@dataclass
class Batches:
    """An endless, seeded, random-access sequence of batches: the step number is the whole position.

    Every epoch shuffles anew and cuts full batches of one width each. Texts that do not fill a batch of their width move up to the next; those
    that are left at the end, fewer than batch_size, sit the epoch out (others the next time). Where these would be all texts of some width,
    in every epoch, the last of the shuffled order sit it out instead, as many, before any batch is filled. All that holds of each group.
    Of more than order.LARGE rows without groups, batches are cut from a window of the order at a time, which leaves none.

    Args:
      lengths: int [N], of each row, in tokens.
      batch_size: rows of a batch.
      widths: that batches have, in tokens, rising.
      seed: of the order.
      groups: int [N]; rows of different groups never share a batch. None: there is one group.
      tokens: int [N], of each row, where its length counts padding of its own; None: its length.
      of_epoch: which rows an epoch has, without groups; None: each once.

    Raises: UserError where no group fills a batch.
    """

    lengths: np.ndarray  # int [N], in tokens
    batch_size: int
    widths: tuple[int, ...]
    seed: int
    groups: np.ndarray | None = None  # int [N]: rows of different groups never share a batch
    tokens: np.ndarray | None = None  # int [N]: of each row, where its length counts padding of its own
    of_epoch: EpochRows | None = None

    def __post_init__(self) -> None:
        rows = len(self.lengths) if self.of_epoch is None else self.of_epoch.count
        fullest = rows if self.groups is None else int(np.bincount(self.groups).max(initial=0))
        if fullest < self.batch_size:
            raise UserError(
                f"{fullest} training texts do not fill one batch of batch_size={self.batch_size}; "
                "lower --config.batch_size or bring more text"
            )
        whole = self.groups is not None
        self._order = EpochOrder(rows, self.batch_size, self.seed, whole, self.of_epoch)
        counts = np.array([rows]) if self.groups is None else np.bincount(self.groups)
        self._steps_per_epoch = int((counts // self.batch_size).sum())
        self._window = (-1, 0)

    @property
    def group_of(self) -> np.ndarray:
        """The group of each row, int [N]."""
        return np.zeros(len(self.lengths), int) if self.groups is None else self.groups

    @property
    def bucket_of(self) -> np.ndarray:
        """The number of the narrowest width that holds each row, int [N]."""
        return np.searchsorted(np.asarray(self.widths), self.lengths)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of an epoch."""
        return self._steps_per_epoch

    @property
    def padding(self) -> float:
        """The share of a batch's places that hold padding, over an epoch, or its first window."""
        plan = self._plan_of(0, 0)
        capacity = sum(width * len(rows) for width, rows in plan)
        return 1.0 - sum(int(self.real_tokens[rows].sum()) for _, rows in plan) / capacity

    @property
    def real_tokens(self) -> np.ndarray:
        """Tokens of each row, int [N]."""
        return self.lengths if self.tokens is None else self.tokens

    def at(self, step: int) -> tuple[int, np.ndarray]:
        """The batch of step 0, 1, …: its width in tokens and the rows of its texts, int64 [batch_size]."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        window, index = self._order.window_of(batch)
        if (epoch, window) != self._window:
            self._plan, self._window = self._plan_of(epoch, window), (epoch, window)
        return self._plan[index]

    def members(self, step: int) -> np.ndarray:
        """The texts of the batch, int64 [batch_size]."""
        return self.at(step)[1]

    def _plan_of(self, epoch: int, window: int) -> list[tuple[int, np.ndarray]]:
        order, rng = self._order.rows_of(epoch, window)
        group_of = np.zeros(len(order), int) if self.groups is None else self.groups[order]
        bucket_of = np.searchsorted(np.asarray(self.widths), self.lengths[order])
        batches: list[tuple[int, np.ndarray]] = []
        for group in np.unique(group_of):
            of_group = np.flatnonzero(group_of == group)
            own, bucket_of_own = order[of_group], bucket_of[of_group]
            if _leaves_a_width_out(np.bincount(bucket_of_own, minlength=len(self.widths)), self.batch_size):
                used = len(own) // self.batch_size * self.batch_size
                own, bucket_of_own = own[:used], bucket_of_own[:used]
            left = np.empty(0, np.int64)
            for bucket, width in enumerate(self.widths):
                rows = np.concatenate([own[bucket_of_own == bucket], left])
                full = len(rows) // self.batch_size * self.batch_size
                batches += [(width, part) for part in rows[:full].reshape(-1, self.batch_size)]
                left = rows[full:]
        return [batches[i] for i in rng.permutation(len(batches))]

    def capacity(self, width: int) -> int:
        """Tokens of a batch of this width, padding included."""
        return width * self.batch_size

    def shapes_used(self) -> list[int]:
        """The widths that some batch of the first epoch, or window, has, the commonest first: each is one compilation."""
        counts: dict[int, int] = {}
        for width, _ in self._plan_of(0, 0):
            counts[width] = counts.get(width, 0) + 1
        return sorted(counts, key=lambda width: -counts[width])


def _leaves_a_width_out(counts: np.ndarray, batch_size: int) -> bool:
    """Whether no row of some width would ever be in a batch, if those that fill none of their width move up.

    Those that move up are the first to do so again: at the end those are left over that every wider width left over. How many they are the
    counts alone decide, so that it is the same in every epoch.

    Args:
      counts: int [widths], rows of each.
    """
    moving_up = np.cumsum(counts) % batch_size
    left_over = np.minimum.accumulate(moving_up[::-1])[::-1]  # of each width and those below it
    return bool(((counts > 0) & (np.diff(left_over, prepend=0) == counts)).any())
