"""Tokens on their way to a table: shards of so many texts, each whole or not there, which are put together at the end."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from jdistill.core.files import write_json, writing_beside
from jdistill.core.mapped import slices_of

NARROW = 1 << 16  # ids below it are kept in two bytes


@dataclass(frozen=True)
class TokenShards:
    """The tokens of N texts in a folder, a file for each `chunk` of them."""

    folder: Path
    count: int
    chunk: int

    def missing(self) -> list[slice]:
        """The texts of the shards that are not there whole, in their order."""
        self.folder.mkdir(exist_ok=True)
        return [part for part in slices_of(self.count, self.chunk) if self._read(part) is None]

    def write(self, part: slice, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Keeps the tokens of some texts: the ids of all int32, and the number of each one's int32."""
        with writing_beside(self._path(part)) as beside, open(beside, "wb") as file:
            np.savez(file, ids=ids, lengths=lengths)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The ids int32 and the lengths int32 [n] of each shard."""
        for part in slices_of(self.count, self.chunk):
            shard = self._read(part)
            if shard is None:
                raise OSError(f"{self._path(part)} has been damaged or taken away; run the command again")
            yield shard

    def _path(self, part: slice) -> Path:
        return self.folder / f"{part.start:012d}-{part.stop:012d}.npz"

    def _read(self, part: slice) -> tuple[np.ndarray, np.ndarray] | None:
        try:  # each array of the archive has a checksum
            with np.load(self._path(part), allow_pickle=False) as arrays:
                ids, lengths = arrays["ids"], arrays["lengths"]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        return (ids, lengths) if len(lengths) == part.stop - part.start and lengths.sum() == len(ids) else None


def write_table(shards: TokenShards, stem: Path, with_lengths: bool) -> None:
    """Writes STEM.ids.npy, STEM.offsets.npy and, last, STEM.json with their checksums, one shard in memory at a time.

    Args:
      with_lengths: also STEM.lengths.npy, of a table whose lengths are not to be computed in memory.
    """
    tokens = most = 0
    for ids, _ in shards:
        tokens, most = tokens + len(ids), max(most, int(ids.max(initial=0)))
    dtype = np.dtype(np.uint16 if most < NARROW else np.int32)

    def offsets() -> Iterator[np.ndarray]:
        yield np.zeros(1, np.int64)
        end = 0
        for _, lengths in shards:
            yield end + np.cumsum(lengths, dtype=np.int64)
            end += int(lengths.sum())

    arrays: dict[str, tuple[np.dtype, int, Callable[[], Iterator[np.ndarray]]]] = {
        "ids": (dtype, tokens, lambda: (ids.astype(dtype) for ids, _ in shards)),
        "offsets": (np.dtype(np.int64), shards.count + 1, offsets),
    }
    if with_lengths:
        arrays["lengths"] = (np.dtype(np.int32), shards.count, lambda: (lengths for _, lengths in shards))
    sums: dict[str, int] = {}
    for name, (of_array, size, pieces) in arrays.items():
        path = stem.with_name(f"{stem.name}.{name}.npy")
        with writing_beside(path) as beside, open(beside, "wb") as file:
            sums[name] = _write_array(file, of_array, size, pieces())
    write_json(stem.with_name(stem.name + ".json"), sums)


def _write_array(file: IO[bytes], dtype: np.dtype, size: int, pieces: Iterator[np.ndarray]) -> int:
    """Writes a .npy of one axis piece by piece; the CRC-32 of its numbers."""
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": (size,)})
    crc = 0
    for piece in pieces:
        content = piece.tobytes()
        file.write(content)
        crc = zlib.crc32(content, crc)
    return crc
