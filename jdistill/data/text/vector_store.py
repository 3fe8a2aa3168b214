"""vectors:FOLDER, what jdistill.embed wrote or other Parquet files of texts and vectors: found by text, read when they are asked for.

In memory are 24 bytes a text: its key and its row. Vectors and texts stay on disk.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.files import read_seal
from jdistill.core.sorted_keys import keys_of_texts
from jdistill.data.text.vector_files import STORED_KEY, StoredFile, common_width, keys_of, read_batches, stored_files
from jdistill.data.text.vector_folder import EMBEDDINGS_SEAL
from jdistill.data.text.vector_parts import GROUP_ROWS
from jdistill.data.text.vectors import SAME, check_vector_rows, decoded_texts, list_matrix


@dataclass(frozen=True)
class VectorStore:
    """Vectors of texts in a folder.

    Args:
      folder: where they lie.
      files: in the order of their rows.
      width: of the vectors.
      keys: the texts' keys, sorted, [n] of 16 bytes.
      key_rows: int64 [n], the row of each.
      fingerprint: of texts and vectors, 32 hexadecimal digits.
    """

    folder: Path
    files: list[StoredFile]
    width: int
    keys: np.ndarray
    key_rows: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.keys)

    def rows_of(self, texts: Sequence[str]) -> np.ndarray:
        """The row of each text, int64 [N], the first of a repeated one; -1 for one that has no vector."""
        wanted = np.array(keys_of_texts(texts).tolist(), STORED_KEY)
        positions = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[positions] == wanted, self.key_rows[positions], -1)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of rows, float32 [N, width]; each row group is read once. Raises UserError for a damaged file or row."""
        out = np.empty((len(rows), self.width), np.float32)
        starts = np.array([file.start for file in self.files])
        file_of = np.searchsorted(starts, rows, side="right") - 1
        for number in np.unique(file_of):
            file, within = self.files[number], np.flatnonzero(file_of == number)
            local = rows[within] - file.start
            group_of = np.searchsorted(file.groups, local, side="right") - 1
            groups = np.unique(group_of).tolist()
            # Row groups that are not asked for are left out; the others' rows come in their order.
            for start, part in self._matrices(file, groups):
                here = (local >= start) & (local < start + len(part))
                out[within[here]] = part[local[here] - start]
        return out

    def pieces(self) -> Iterator[np.ndarray]:
        """All vectors, float32 [n, width] at a time, in the order of their rows."""
        for file in self.files:
            yield from (part for _, part in self._matrices(file, list(range(len(file.groups)))))

    def _matrices(self, file: StoredFile, groups: list[int]) -> Iterator[tuple[int, np.ndarray]]:
        for group in groups:
            start = int(file.groups[group])
            for batch in read_batches(file.path, [file.vector], [group]):
                part = list_matrix(file.path, file.vector, batch.column(0), start, self.width)
                check_vector_rows(file.path, part, start)
                yield start, part
                start += len(part)

    @property
    def texts(self) -> TextsOfVectors | None:
        """Its texts; None where a file has their keys alone."""
        return TextsOfVectors(self) if all(file.with_text for file in self.files) else None


@dataclass(frozen=True)
class TextsOfVectors(Collection[str]):
    """The texts of a store, stripped, in the order of their rows, read from disk whenever they are gone through."""

    store: VectorStore

    def __len__(self) -> int:
        return len(self.store)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and bool(self.store.rows_of([text])[0] >= 0)

    def __iter__(self) -> Iterator[str]:
        for file in self.store.files:
            start = 0
            for batch in read_batches(file.path, ["text"]):
                yield from (text.strip() for text in decoded_texts(file.path, batch.column(0), start))
                start += len(batch)


def open_store(folder: Path, key: str = "config.teacher") -> VectorStore:
    """Opens a folder of Parquet files with columns `text` and `vector` or `embedding`; ours may have `key` in the place of `text`.

    What jdistill.embed wrote guards itself and is trusted. Other files are read through once, and checked as read_vectors does.

    Raises: UserError for a folder that jdistill.embed has not finished, files of different widths, and what read_vectors refuses.
    """
    seal = read_seal(folder, EMBEDDINGS_SEAL)
    stored = stored_files(folder, seal, key)
    width = common_width(stored, seal)
    keys = np.concatenate([keys_of(file) for file in stored])
    order = np.argsort(keys, kind="stable")
    store = VectorStore(folder, stored, width, keys[order], order, "")
    content = repr(seal["settings"]) if seal else _checked_digest(store)
    object.__setattr__(store, "fingerprint", digest(content, keys.view("u1")))
    return store


def _checked_digest(store: VectorStore) -> str:
    """A hash of all vectors, each checked. Raises UserError for two vectors of one text."""
    hashed = hashlib.blake2b(digest_size=16)
    for piece in store.pieces():
        hashed.update(np.ascontiguousarray(piece).data)
    again = np.flatnonzero(store.keys[1:] == store.keys[:-1])
    for start in range(0, len(again), GROUP_ROWS):
        positions = again[start : start + GROUP_ROWS]
        left, right = (store.vectors(store.key_rows[at]) for at in (positions, positions + 1))
        apart = np.linalg.norm(right - left, axis=1) > SAME * np.linalg.norm(left, axis=1)
        if apart.any():
            one_row, other = (_place(store, int(store.key_rows[positions[int(np.argmax(apart))] + i])) for i in (0, 1))
            raise UserError(f"{other}: the text of {one_row} again, with another vector")
    return hashed.hexdigest()


def _place(store: VectorStore, row: int) -> str:
    file = next(file for file in reversed(store.files) if file.start <= row)
    return f"{file.path} row {row - file.start}"
