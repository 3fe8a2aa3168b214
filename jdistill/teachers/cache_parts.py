"""The files of an answer cache: what each writing process appended, row by row, with a checksum for every row.

part-00000.values     rows, raw little-endian, appended (one part per writing process)
part-00000.sums       4 bytes a row: CRC-32 of its key and values, checked whenever a row is read
part-00000.keys       16 bytes a row, appended after the others are on disk: a row counts once its key is there

All three are memory-mapped; beside the keys of a large part lies their order (key_index).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core.cache_mirror import is_part_full, own_part, sync_parts
from jdistill.core.errors import UserError
from jdistill.core.files import writing_beside
from jdistill.core.left_over import clear_beside
from jdistill.core.locks import try_lock
from jdistill.core.mapped import map_rows, scattered
from jdistill.core.progress import log
from jdistill.core.sorted_keys import KEY
from jdistill.core.stopping import stop_if_asked
from jdistill.teachers.key_index import PartIndex, open_index

SUM = np.dtype("<u4")
STRUCK = bytes(KEY.itemsize)  # the key of a row that was damaged: nobody's
STRUCK_KEY = np.frombuffer(STRUCK, KEY)[0]
MOST_PARTS = 10_000


@dataclass(frozen=True)
class RowType:
    """What a row holds: `width` numbers of a type."""

    width: int
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return self.width * self.dtype.itemsize


@dataclass(frozen=True)
class Part:
    """What one writing process appended: its files, and the whole rows that they hold.

    Args:
      values_path: of the file with the values; the other two lie beside it.
      keys: [n] of 16 bytes, memory-mapped, as the next two.
      sums: uint32 [n].
      values: [n, width].
      index: finds a key among them.
      files: (device, number) of the three files, which others in their place do not have.
    """

    values_path: Path
    keys: np.ndarray
    sums: np.ndarray
    values: np.ndarray
    index: PartIndex
    files: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.keys)

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The values of these rows, [len(rows), width], and whether each is damaged, bool [len(rows)]."""
        values = scattered(self.values, rows)
        return values, checksums(self.keys[rows], values) != self.sums[rows]

    def strike(self, rows: np.ndarray) -> None:
        """Takes the keys off these rows, so that nobody reads them again."""
        with open(self.values_path.with_suffix(".keys"), "r+b") as keys:
            for row in rows.tolist():
                keys.seek(row * KEY.itemsize)
                keys.write(STRUCK)


def checksums(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The checksum of each row, uint32 [N], of its key and its values."""
    pairs = zip(keys.tolist(), np.ascontiguousarray(values), strict=True)
    return np.fromiter((zlib.crc32(row, zlib.crc32(key)) for key, row in pairs), SUM, len(keys))


def read_parts(folder: Path, row_type: RowType, earlier: Sequence[Part] = ()) -> list[Part]:
    """All parts of a folder, in the order of their names.

    Args:
      earlier: as they were read before. Of those that have not grown nothing is opened, of the others only the new keys are looked at.
    """
    of_path = {part.values_path: part for part in earlier}
    return [_read_part(path, row_type, of_path.get(path)) for path in sorted(folder.glob("part-*.values"))]


def _read_part(values_path: Path, row_type: RowType, earlier: Part | None) -> Part:
    keys_path, sums_path = values_path.with_suffix(".keys"), values_path.with_suffix(".sums")
    n = min(_count_rows(keys_path, KEY.itemsize), _count_rows(values_path, row_type.nbytes))
    if n and not sums_path.exists():
        _add_checksums(values_path, row_type, n)
    n = count_whole_rows(values_path, row_type)
    stats = [path.stat() for path in (values_path, sums_path, keys_path)] if n else []
    files = tuple((stat.st_dev, stat.st_ino) for stat in stats)
    if earlier is not None and (earlier.files != files or not 0 < len(earlier) <= n):
        earlier = None
    if earlier is not None and len(earlier) == n:
        return earlier
    keys = map_rows(keys_path, KEY, n)
    values = map_rows(values_path, row_type.dtype, n, row_type.width)
    index = open_index(keys_path, keys, earlier.index if earlier is not None else None)
    return Part(values_path, keys, map_rows(sums_path, SUM, n), values, index, files)


def _add_checksums(values_path: Path, row_type: RowType, n: int) -> None:
    """Gives a part of before there were checksums its own, of what it holds now."""
    keys_path, sums_path = values_path.with_suffix(".keys"), values_path.with_suffix(".sums")
    with open(keys_path, "r+b") as held:  # NFS locks no file that is open for reading alone
        locked = try_lock(held.fileno())
        if locked is False or sums_path.exists():
            return  # whoever writes the part will have them written
        if locked:
            clear_beside(sums_path)
        log.info("%s has no checksums: %d answers are taken as they are, and have them now", keys_path, n)
        values = np.memmap(values_path, row_type.dtype, "r", shape=(n, row_type.width))
        with writing_beside(sums_path) as beside:
            checksums(np.fromfile(keys_path, KEY, n), values).tofile(beside)


@dataclass(frozen=True)
class OwnPart:
    """A part that this process alone writes.

    Args:
      values_path: of the file with its values.
      turn: 0 of the only process, or the first, that fills a cache here; of others, and of all that fill one in a store, each its own.
      append: (keys [n] of 16 bytes, values [n, width]) -> None; it returns once they are on disk.
    """

    values_path: Path
    turn: int
    append: Callable[[np.ndarray, np.ndarray], None]


@contextmanager
def open_own_part(folder: Path, row_type: RowType, writer: int) -> Iterator[OwnPart]:
    """A part which no other process writes: the writer's, or the next free one.

    Raises: UserError where all are held.
    """
    first = own_part(folder, writer)
    for number in range(first, first + MOST_PARTS):
        stem = folder / f"part-{number:05d}"
        paths = [stem.with_suffix(f".{end}") for end in ("values", "sums", "keys")]
        if _count_rows(paths[2], KEY.itemsize) and not paths[1].exists():
            continue  # another process, which held it as we read it, appends without checksums
        with open(paths[0], "ab") as values, open(paths[1], "ab") as sums, open(paths[2], "ab") as keys:
            if try_lock(keys.fileno()) is False:
                continue
            sizes = {values: row_type.nbytes, sums: SUM.itemsize, keys: KEY.itemsize}
            # What a killed writer left half-written behind the last whole row is cut off before anything is appended.
            rows_of = [file.seek(0, os.SEEK_END) // size for file, size in sizes.items()]
            whole_rows = min(rows_of)
            if lost := max(rows_of) - whole_rows:
                log.warning("%s.*: %d answers are not there whole, and are damaged or cut off: asked again", stem, lost)
            for file, size in sizes.items():
                file.truncate(whole_rows * size)

            def append(row_keys: np.ndarray, rows: np.ndarray) -> None:
                for file, data in ((values, rows), (sums, checksums(row_keys, rows)), (keys, row_keys)):
                    file.write(data.tobytes())
                    file.flush()
                    os.fsync(file.fileno())

            try:
                yield OwnPart(paths[0], number - writer, append)
            finally:  # also what was answered until a signal came
                sync_parts(folder)
            return
    raise UserError(f"{folder} is being filled by too many processes; set another cache_dir")


def append_to_parts(
    folder: Path,
    row_type: RowType,
    writer: int,
    pieces: Iterator[tuple[np.ndarray, np.ndarray]],
    begun: Callable[[OwnPart], None],
    appended: Callable[[int], None],
) -> None:
    """Appends answers to parts that no other process writes. Of a mirror one is stored, and another begun, as often as one is full.

    Args:
      folder, row_type, writer: as of open_own_part.
      pieces: keys and values, as it appends them.
      begun: is told of each part, before the first piece that goes there is asked for.
      appended: is told of how many rows, after each piece.

    Raises: Stopped after the piece in hand, within stopping_by, where a signal came.
    """
    more = True
    while more:
        more = False
        with open_own_part(folder, row_type, writer) as part:
            begun(part)
            for keys, values in pieces:
                part.append(keys, values)
                appended(len(keys))
                stop_if_asked()
                if more := is_part_full(part.values_path):
                    break


def count_whole_rows(values_path: Path, row_type: RowType) -> int:
    """The rows of a part of which all is there."""
    size_of = {".values": row_type.nbytes, ".sums": SUM.itemsize, ".keys": KEY.itemsize}
    return min(_count_rows(values_path.with_suffix(end), size) for end, size in size_of.items())


def _count_rows(path: Path, size: int) -> int:
    """How many whole rows of `size` bytes a file holds; 0 where there is none."""
    return path.stat().st_size // size if path.exists() else 0
