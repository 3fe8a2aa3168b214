"""A corpus as a sequence of strings that does not live in memory: rows of a file of texts, and sequences of it end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import chain
from typing import overload

import numpy as np

from jdistill.core.digest import digest
from jdistill.core.mapped import release, slices_of
from jdistill.core.sorted_keys import KEY, keys_at, keys_of_texts
from jdistill.data.text.text_file import TextFile

BLOCK = 1 << 13  # texts that a pass holds at once


class LongTexts(Sequence[str]):
    """A sequence of texts of which few are ever in memory. Slices are views; `+` puts sequences end to end.

    Attributes:
      fingerprint: another for other texts, where it is known without reading them, else None; of stored texts digest(texts).
    """

    fingerprint: str | None = None

    def take(self, rows: np.ndarray) -> list[str]:
        """The texts of these rows, int64 [n], in their order."""
        raise NotImplementedError

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        """The keys of these texts, or of all, [N] of 16 bytes (core.sorted_keys)."""
        raise NotImplementedError

    def part(self, start: int, stop: int) -> LongTexts:
        """The texts from `start` to `stop`, 0 <= start <= stop <= N."""
        raise NotImplementedError

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            return self.part(start, max(start, stop)) if step == 1 else self.take(np.arange(start, stop, step))
        row = at + len(self) if at < 0 else at
        if not 0 <= row < len(self):
            raise IndexError(f"text {at} of {len(self)}")
        return self.take(np.array([row]))[0]

    def __add__(self, other: Sequence[str]) -> LongTexts:
        return JoinedTexts([self, other])

    def __radd__(self, other: Sequence[str]) -> LongTexts:
        return JoinedTexts([other, self])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LongTexts | list | tuple) or len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} texts: {', '.join(map(repr, self[:3]))}{', …' if len(self) > 3 else ''}>"


class StoredTexts(LongTexts):
    """Texts of a file in its order, but for some.

    Args:
      file: where they lie.
      keys: of the file's texts, [N] of 16 bytes, memory-mapped.
      left_out: rows of the file that are no part of it, int64, rising.
      start, stop: which of the rest are; None: to the end.
      fingerprint: digest(texts), where it is known.
    """

    def __init__(
        self,
        file: TextFile,
        keys: np.ndarray,
        left_out: np.ndarray | None = None,
        start: int = 0,
        stop: int | None = None,
        fingerprint: str | None = None,
    ):
        self._file, self._keys, self._start, self.fingerprint = file, keys, start, fingerprint
        left_out = np.empty(0, np.int64) if left_out is None else left_out
        self._stop = len(file) - len(left_out) if stop is None else stop
        # How many of the rest come before each that is left out.
        self._before = left_out - np.arange(len(left_out))

    def __len__(self) -> int:
        return self._stop - self._start

    def file_rows(self, rows: np.ndarray) -> np.ndarray:
        """Where these texts stand in the file, int64 [n]."""
        of_rest = rows + self._start
        return of_rest + np.searchsorted(self._before, of_rest, side="right")

    def take(self, rows: np.ndarray) -> list[str]:
        return self._file.take(self.file_rows(np.asarray(rows, np.int64)))

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        keys = self._keys[self.file_rows(np.arange(len(self)) if rows is None else rows)]
        release(self._keys)
        return keys

    def without(self, left_out: np.ndarray, count: int, fingerprint: str | None) -> StoredTexts:
        """The first `count` of a whole file's texts without some; left_out: their rows, int64, rising."""
        return StoredTexts(self._file, self._keys, left_out, 0, count, fingerprint)

    def part(self, start: int, stop: int) -> StoredTexts:
        if (start, stop) == (0, len(self)):
            return self
        view = copy(self)  # which shares what is left out: there may be a view for every few texts
        view._start, view._stop, view.fingerprint = self._start + start, self._start + stop, None
        return view

    def __iter__(self) -> Iterator[str]:
        for block in slices_of(len(self), BLOCK):
            yield from self.take(np.arange(block.start, block.stop))


class JoinedTexts(LongTexts):
    """Sequences of texts, one after another."""

    def __init__(self, parts: Sequence[Sequence[str]]):
        self._parts: list[Sequence[str]] = list(
            chain.from_iterable(p._parts if isinstance(p, JoinedTexts) else [p] for p in parts)
        )
        self._starts = np.cumsum([0] + [len(part) for part in self._parts])
        hashes = [part.fingerprint for part in self._parts if isinstance(part, LongTexts) and part.fingerprint]
        self.fingerprint = digest(hashes) if len(hashes) == len(self._parts) else None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts)

    def take(self, rows: np.ndarray) -> list[str]:
        rows = np.asarray(rows, np.int64)
        texts = [""] * len(rows)
        for part, start in zip(self._parts, self._starts.tolist(), strict=False):
            here = np.flatnonzero((rows >= start) & (rows < start + len(part)))
            for place, text in zip(here.tolist(), take_texts(part, rows[here] - start), strict=True):
                texts[place] = text
        return texts

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        if rows is None:
            return np.concatenate([np.empty(0, KEY), *map(keys_of_texts, self._parts)])
        keys = np.empty(len(rows), KEY)
        for part, start in zip(self._parts, self._starts.tolist(), strict=False):
            here = np.flatnonzero((rows >= start) & (rows < start + len(part)))
            keys[here] = keys_at(part, rows[here] - start)
        return keys

    def part(self, start: int, stop: int) -> LongTexts:
        pairs = zip(self._parts, self._starts.tolist(), strict=False)
        parts = [p[max(start - at, 0) : stop - at] for p, at in pairs if max(start, at) < min(stop, at + len(p))]
        # What is one sequence alone is that sequence, which may have a fingerprint.
        return parts[0] if len(parts) == 1 and isinstance(parts[0], LongTexts) else JoinedTexts(parts)


class ChosenTexts(LongTexts):
    """Some texts of a sequence.

    Args:
      texts: of any kind.
      rows: which of them, in this order, int64 [N].
    """

    def __init__(self, texts: Sequence[str], rows: np.ndarray):
        self._texts, self._rows = texts, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        for block in slices_of(len(self), BLOCK):
            yield from take_texts(self._texts, self._rows[block])

    def take(self, rows: np.ndarray) -> list[str]:
        return take_texts(self._texts, self._rows[rows])

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        return keys_at(self._texts, self._rows if rows is None else self._rows[rows])

    def part(self, start: int, stop: int) -> ChosenTexts:
        return ChosenTexts(self._texts, self._rows[start:stop])


class PromptedTexts(LongTexts):
    """Texts with the same prompt before each.

    Args:
      texts: without it.
      prompt: put before them as it is.
    """

    def __init__(self, texts: Sequence[str], prompt: str):
        self._texts, self._prompt = texts, prompt
        own = texts.fingerprint if isinstance(texts, LongTexts) else None
        self.fingerprint = digest(prompt, own) if own else None

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[str]:
        return (self._prompt + text for text in self._texts)

    def take(self, rows: np.ndarray) -> list[str]:
        return [self._prompt + text for text in take_texts(self._texts, np.asarray(rows, np.int64))]

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        return keys_of_texts(iter(self) if rows is None else self.take(rows))

    def part(self, start: int, stop: int) -> PromptedTexts:
        return PromptedTexts(self._texts[start:stop], self._prompt)


def fingerprint_of(texts: Sequence[str]) -> str:
    """Another for other texts of a sequence of any kind, 32 hexadecimal digits."""
    return (texts.fingerprint if isinstance(texts, LongTexts) else None) or digest(texts)


def take_texts(texts: Sequence[str], rows: np.ndarray) -> list[str]:
    """Some texts of a sequence of any kind, in the order of their rows, int64."""
    return texts.take(rows) if isinstance(texts, LongTexts) else [texts[i] for i in rows.tolist()]


def put_together(first: Sequence[str], second: Sequence[str]) -> Sequence[str]:
    """Two sequences of texts as one, of any kind; neither is copied where one is long."""
    return [*first, *second] if isinstance(first, list) and isinstance(second, list) else JoinedTexts([first, second])
