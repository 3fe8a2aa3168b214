"""A kept corpus parted into training and held-out texts, evaluation sentences left out: in one pass, whose result is kept too."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
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
from jdistill.data.text.stored_texts import StoredTexts

FORMAT_OF_SPLIT = "split 1"
BLOCK_TEXTS = 1 << 14  # texts that are looked at at once
BIG_ENDIAN = np.dtype(">u8")  # hashes are compared byte by byte


@dataclass(frozen=True)
class SplitRows:
    """Which texts of a corpus are what.

    Args:
      removed: rows of texts that an evaluation sentence equals, int64, rising.
      held_out: rows of those kept apart, int64, rising.
      fingerprint: digest(training texts).
    """

    removed: np.ndarray
    held_out: np.ndarray
    fingerprint: str


def split_kept(
    kept: KeptTexts, evaluation: Iterable[str], held_out: int, max_texts: int, seed: int
) -> tuple[StoredTexts, list[str], int]:
    """What the removal of evaluation sentences, holdout.split_held_out and a cut after max_texts leave of a kept corpus.

    Args:
      held_out: texts kept apart, at most; a tenth of the corpus at most.
      max_texts: training texts, at most; 0: all.

    Returns: training texts, held-out texts, and how many an evaluation sentence equals.
    """
    forbidden = {comparable(text) for text in evaluation}
    settings = str((FORMAT_OF_SPLIT, held_out, max_texts, seed))
    path = kept.folder.with_name(f"{kept.folder.name}-{digest(kept.content, sorted(forbidden), settings)}.npz")
    with only_one(path.with_name(f"{TEMPORARY}lock-{path.name}"), path, "the splitting", wait=True):
        clear_beside(path)
        rows = _read(path)
        if rows is None:
            removed, apart = choose_rows(kept.texts, forbidden, held_out, seed)
            rows = SplitRows(removed, apart, digest(_training(kept.texts, SplitRows(removed, apart, ""), max_texts)))
            buffer = io.BytesIO()
            np.savez(buffer, removed=removed, held_out=apart, fingerprint=np.array(rows.fingerprint))
            write_bytes(path, buffer.getvalue())
    return _training(kept.texts, rows, max_texts), kept.texts.take(rows.held_out), len(rows.removed)


def _training(texts: StoredTexts, rows: SplitRows, max_texts: int) -> StoredTexts:
    left_out = np.union1d(rows.removed, rows.held_out)
    count = len(texts) - len(left_out)
    return texts.without(left_out, min(max_texts or count, count), rows.fingerprint or None)


def choose_rows(texts: StoredTexts, forbidden: set[str], held_out: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that an evaluation sentence equals, and those of the lowest hashes among the others, at most a tenth of these.

    Args:
      forbidden: evaluation sentences as `comparable` has them.
    """
    most = min(held_out, len(texts) // 10)
    removed: list[int] = []
    lowest = _Lowest(most)
    with progress("splitting", len(texts), "texts") as meter:
        for block in slices_of(len(texts) if forbidden or most > 0 else 0, BLOCK_TEXTS):
            some = list(enumerate(texts[block], block.start))
            if forbidden:
                gone = {row for row, text in some if comparable(text) in forbidden}
                removed += sorted(gone)
                some = [(row, text) for row, text in some if row not in gone]
            if most > 0:
                lowest.add(b"".join([split_hash(text, seed) for _, text in some]), [row for row, _ in some])
            meter.advance(block.stop - block.start)
    apart = lowest.rows(min(held_out, (len(texts) - len(removed)) // 10))
    return np.array(removed, np.int64), apart


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
        """The rows of the `count` lowest, int64, rising."""
        return np.sort(self._rows[: max(count, 0)])


def _read(path: Path) -> SplitRows | None:
    if not path.is_file():
        return None
    try:  # each array of the archive has a checksum
        with np.load(path, allow_pickle=False) as arrays:
            return SplitRows(arrays["removed"], arrays["held_out"], str(arrays["fingerprint"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        log.warning("%s: the kept split cannot be read (%s); made again", path, error)
        return None
