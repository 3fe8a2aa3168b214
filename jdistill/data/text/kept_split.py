"""Kept corpora parted into training and held-out texts, evaluation sentences left out: in one pass, whose result is kept too."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jdistill.core.digest import digest
from jdistill.core.files import TEMPORARY, write_bytes
from jdistill.core.left_over import clear_beside
from jdistill.core.locks import only_one
from jdistill.core.mapped import slices_of
from jdistill.core.progress import log, progress
from jdistill.data.text.holdout import comparable, split_hash
from jdistill.data.text.kept_texts import KeptTexts
from jdistill.data.text.repeats import NO_ROWS, repeated_rows
from jdistill.data.text.stored_texts import LongTexts, StoredTexts

FORMAT_OF_SPLIT = "split 2"  # another where the same texts would be split otherwise, as by another `comparable`
BLOCK_TEXTS = 1 << 14  # texts that are looked at at once
BIG_ENDIAN = np.dtype(">u8")  # hashes are compared byte by byte


@dataclass(frozen=True)
class SplitRows:
    """Which texts of a corpus are what.

    Args:
      removed: rows of texts that an evaluation sentence equals, int64, rising.
      held_out: rows of those kept apart, int64, rising.
      fingerprint: digest(training texts).
      repeated: rows of texts that a source before has in the same role, int64, rising.
    """

    removed: np.ndarray
    held_out: np.ndarray
    fingerprint: str
    repeated: np.ndarray = field(default_factory=lambda: NO_ROWS)

    @property
    def left_out(self) -> np.ndarray:
        """The rows that are not trained on, int64, rising."""
        return np.union1d(np.union1d(self.removed, self.held_out), self.repeated)


@dataclass(frozen=True)
class SplitPart:
    """What the split leaves of a source.

    Args:
      train: training texts.
      held_out: texts kept apart.
      removed: how many an evaluation sentence equals.
    """

    train: StoredTexts
    held_out: list[str]
    removed: int


def split_kept(
    kept: KeptTexts, evaluation: Iterable[str], held_out: int, max_texts: int, seed: int
) -> tuple[StoredTexts, list[str], int]:
    """split_together of one corpus: training texts, held-out texts, and how many an evaluation sentence equals."""
    (part,) = split_together([kept], [""], evaluation, held_out, max_texts, seed)
    return part.train, part.held_out, part.removed


def split_together(
    sources: Sequence[KeptTexts],
    roles: Sequence[str],
    evaluation: Iterable[str],
    held_out: int,
    max_texts: int,
    seed: int,
) -> list[SplitPart]:
    """What the removal of evaluation sentences, holdout.split_held_out and a cut after max_texts leave of kept corpora, as if they were one.

    A text that two of them have in one role is the first's; one that they have in two roles stays in both, and is held out in both or
    neither.

    Args:
      roles: of the texts of each corpus.
      held_out: texts kept apart, at most; a tenth of all at most.
      max_texts: training texts, at most, of each corpus its share; 0: all.

    Returns: of each corpus its part.
    """
    forbidden = {comparable(text) for text in evaluation}
    settings = str((FORMAT_OF_SPLIT, held_out, max_texts, seed))
    of_all = sources[0].content if len(sources) == 1 else digest([kept.content for kept in sources], roles)
    folder = sources[0].folder
    path = folder.with_name(f"{folder.name}-{digest(of_all, sorted(forbidden), settings)}.npz")
    texts = [kept.texts for kept in sources]
    with only_one(path.with_name(f"{TEMPORARY}lock-{path.name}"), path, "the splitting", wait=True):
        clear_beside(path)
        rows = _read(path, len(sources))
        if rows is None:
            rows = choose_rows(texts, repeated_rows(texts, roles, path.parent), forbidden, held_out, seed)
            training = _training(texts, rows, max_texts)
            rows = [
                SplitRows(r.removed, r.held_out, digest(t), r.repeated) for r, t in zip(rows, training, strict=True)
            ]
            _write(path, rows)
    parts = zip(_training(texts, rows, max_texts), texts, rows, strict=True)
    return [SplitPart(train, whole.take(r.held_out), len(r.removed)) for train, whole, r in parts]


def _shares(counts: np.ndarray, max_texts: int) -> np.ndarray:
    """So many texts of each corpus, int64, that they are max_texts together, in proportion, but where that is enough one of each at least."""
    shares = np.diff(np.cumsum(counts) * max_texts // counts.sum(), prepend=0)
    if max_texts >= (counts > 0).sum():
        for none in np.flatnonzero((shares == 0) & (counts > 0)):
            shares[shares.argmax()] -= 1
            shares[none] = 1
    return shares


def _training(texts: Sequence[StoredTexts], rows: Sequence[SplitRows], max_texts: int) -> list[StoredTexts]:
    left_out = [r.left_out for r in rows]
    counts = np.array([len(whole) - len(gone) for whole, gone in zip(texts, left_out, strict=True)], np.int64)
    if max_texts and max_texts < counts.sum():
        counts = _shares(counts, max_texts)
    return [
        whole.without(gone, int(count), r.fingerprint or None)
        for whole, gone, count, r in zip(texts, left_out, counts, rows, strict=True)
    ]


def choose_rows(
    sources: Sequence[LongTexts], repeated: Sequence[np.ndarray], forbidden: set[str], held_out: int, seed: int
) -> list[SplitRows]:
    """The rows of each source that an evaluation sentence equals, and those of the lowest hashes among the others of all, at most a tenth.

    Args:
      repeated: rows of each source that are passed over, int64, rising.
      forbidden: evaluation sentences as `comparable` has them.
    """
    total = sum(map(len, sources)) - sum(map(len, repeated))
    most = min(held_out, total // 10)
    removed: list[list[int]] = [[] for _ in sources]
    lowest = _Lowest(most + len(sources))
    starts = np.cumsum([0, *map(len, sources)])
    with progress("splitting", total, "texts") as meter:
        for texts, passed, gone_rows, base in zip(sources, repeated, removed, starts.tolist(), strict=False):
            for block in slices_of(len(texts) if forbidden or most > 0 else 0, BLOCK_TEXTS):
                some = list(enumerate(texts[block], block.start))
                if len(passed):
                    again = set(passed[slice(*np.searchsorted(passed, (block.start, block.stop)))].tolist())
                    some = [(row, text) for row, text in some if row not in again]
                meter.advance(len(some))
                if forbidden:
                    gone = {row for row, text in some if comparable(text) in forbidden}
                    gone_rows += sorted(gone)
                    some = [(row, text) for row, text in some if row not in gone]
                if most > 0:
                    lowest.add(b"".join([split_hash(text, seed) for _, text in some]), [base + row for row, _ in some])
    apart = lowest.rows(min(held_out, (total - sum(map(len, removed))) // 10))
    of_source = np.split(apart, np.searchsorted(apart, starts[1:-1]))
    return [
        SplitRows(np.array(gone, np.int64), rows - start, "", again)
        for gone, rows, start, again in zip(removed, of_source, starts.tolist(), repeated, strict=False)
    ]


class _Lowest:
    """The rows of the lowest hashes of 16 bytes, of any number that come."""

    def __init__(self, most: int):
        self._most = most
        self._hashes, self._rows = np.empty((0, 2), np.uint64), np.empty(0, np.int64)

    def add(self, hashes: bytes, rows: list[int]) -> None:
        new = np.frombuffer(hashes, BIG_ENDIAN).astype(np.uint64).reshape(-1, 2)
        all_hashes = np.concatenate([self._hashes, new])
        all_rows = np.concatenate([self._rows, np.array(rows, np.int64)])
        order = np.lexsort((all_hashes[:, 1], all_hashes[:, 0]))[: self._most]
        self._hashes, self._rows = all_hashes[order], all_rows[order]

    def rows(self, count: int) -> np.ndarray:
        """The rows of the `count` lowest, int64, rising; fewer where the next has the last one's hash: those of one text stay together."""
        count = max(count, 0)
        while 0 < count < len(self._rows) and (self._hashes[count] == self._hashes[count - 1]).all():
            count -= 1
        return np.sort(self._rows[:count])


def _names(number: int, count: int) -> list[str]:
    """The names of a source's arrays: of one alone as they always were."""
    names = ["removed", "held_out", "fingerprint"]
    return names if count == 1 else [f"{name}_{number}" for name in (*names, "repeated")]


def _write(path: Path, rows: Sequence[SplitRows]) -> None:
    arrays: dict[str, np.ndarray] = {}
    for number, r in enumerate(rows):
        parts = (r.removed, r.held_out, np.array(r.fingerprint), r.repeated)
        arrays |= dict(zip(_names(number, len(rows)), parts, strict=False))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def _read(path: Path, count: int) -> list[SplitRows] | None:
    if not path.is_file():
        return None
    try:  # each array of the archive has a checksum
        with np.load(path, allow_pickle=False) as arrays:
            parts = [[arrays[name] for name in _names(number, count)] for number in range(count)]
            return [SplitRows(removed, apart, str(of), *more) for removed, apart, of, *more in parts]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        log.warning("%s: the kept split cannot be read (%s); made again", path, error)
        return None
