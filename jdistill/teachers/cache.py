"""The teacher's answers, kept once on disk and found again by content.

An answer is a row of numbers for a text. Its key is a hash of the text; the folder's name is the teacher's
fingerprint, so another batch size, order, corpus or number of devices finds the same answers. Layout of one folder:

    about.json            what the answers are: readable, never needed to find them
    part-00000.values     rows, raw little-endian, appended (one part per writing process)
    part-00000.sums       4 bytes a row: CRC-32 of its key and values, checked whenever a row is read
    part-00000.keys       16 bytes a row, appended after the others are on disk: a row counts once its key is there
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import naming
from jdistill.core.locks import try_lock
from jdistill.core.progress import log, progress

KEY, SUM = np.dtype("V16"), np.dtype("<u4")
STRUCK = bytes(KEY.itemsize)  # the key of a row that was found damaged: nobody's
CHUNK = 2048  # texts that are asked for at once; what a killed fill loses at most
# texts -> (rows int64 [m] among them, their answers [m, width]), in pieces and in an order of its own, each row once
Pieces = Callable[[list[str]], Iterable[tuple[np.ndarray, np.ndarray]]]


def keys_of(texts: Sequence[str]) -> np.ndarray:
    """The key of each text, [N] of 16 bytes."""
    return np.frombuffer(b"".join(hashlib.blake2b(t.encode(), digest_size=16).digest() for t in texts), KEY)


def whole(answer: Callable[[list[str]], np.ndarray]) -> Pieces:
    """All answers, [n, width] of n texts, as one piece."""
    return lambda texts: [(np.arange(len(texts)), answer(texts))]


def sums_of(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The checksum of each row, uint32 [N], of its key and its values."""
    pairs = zip(keys.tolist(), np.ascontiguousarray(values), strict=True)
    return np.fromiter((zlib.crc32(row, zlib.crc32(key)) for key, row in pairs), SUM, len(keys))


class DamagedRows(UserError):
    """Rows whose checksum is not that of what they hold. rows: int64, as AnswerCache.rows gives them."""

    def __init__(self, folder: Path, rows: np.ndarray):
        super().__init__(
            f"{len(rows)} answers in {folder} are damaged; run the command again, which asks for them anew"
        )
        self.rows = rows


@dataclass(frozen=True)
class _Part:
    """What one writing process appended: its files, and the whole rows that they hold."""

    values_path: Path
    keys: np.ndarray
    sums: np.ndarray
    values: np.ndarray

    @property
    def keys_path(self) -> Path:
        return self.values_path.with_suffix(".keys")


class AnswerCache:
    """One kind of answer by one teacher: float rows of a fixed width.

    folder: made if absent. width, dtype: of one row. about: written to about.json for a person who looks. writer: the
    number of the process that appends; where another process holds that part, the next free one is taken. All parts are read.
    """

    def __init__(
        self, folder: Path, width: int, dtype: str = "float32", about: dict[str, object] | None = None, writer: int = 0
    ):
        self.folder, self.width, self.dtype, self.writer = folder, width, np.dtype(dtype), writer
        self.row_bytes = width * self.dtype.itemsize
        folder.mkdir(parents=True, exist_ok=True)
        self._settle(about or {})
        self.reload()

    def _settle(self, about: dict[str, object]) -> None:
        """Writes about.json, or refuses a folder of answers of another shape."""
        description = {"width": self.width, "dtype": self.dtype.name}
        path = self.folder / "about.json"
        try:
            found = json.loads(path.read_text())
            found = {name: found[name] for name in description}
        except FileNotFoundError:
            found = None
        except (ValueError, KeyError, TypeError, RecursionError):
            log.warning("%s is damaged, and written again", path)
            found = None
        if found is None and self.writer == 0:
            # In place: nothing reads it but people and the check above, which writes a half one again.
            path.write_text(json.dumps(description | about, indent=2) + "\n")
        elif found is not None and found != description:
            raise UserError(
                f"{self.folder} holds answers of another shape ({found}, not {description}); delete it or set cache_dir"
            )

    def reload(self) -> None:
        """Reads the keys of all parts afresh; values stay on disk, memory-mapped."""
        self.parts = [self._read(path) for path in sorted(self.folder.glob("part-*.values"))]
        self.starts = np.cumsum([0] + [len(part.keys) for part in self.parts])
        all_keys = np.concatenate([part.keys for part in self.parts]) if self.parts else np.empty(0, KEY)
        self.row_of = {key: row for row, key in enumerate(all_keys.tolist())}
        self.row_of.pop(STRUCK, None)

    def _read(self, values_path: Path) -> _Part:
        keys_path, sums_path = values_path.with_suffix(".keys"), values_path.with_suffix(".sums")
        n = min(_rows(keys_path, KEY.itemsize), _rows(values_path, self.row_bytes))
        if n and not sums_path.exists():
            self._add_sums(keys_path, sums_path, values_path, n)
        n = min(n, _rows(sums_path, SUM.itemsize))
        if not n:
            return _Part(values_path, np.empty(0, KEY), np.empty(0, SUM), np.empty((0, self.width), self.dtype))
        values = np.memmap(values_path, self.dtype, "r", shape=(n, self.width))
        return _Part(values_path, np.fromfile(keys_path, KEY, n), np.fromfile(sums_path, SUM, n), values)

    def _add_sums(self, keys_path: Path, sums_path: Path, values_path: Path, n: int) -> None:
        """Gives a part of before there were checksums its own, of what it holds now."""
        with open(keys_path, "rb") as held:
            if try_lock(held.fileno()) is False or sums_path.exists():
                return  # whoever writes the part will have them written
            log.info("%s has no checksums: %d answers are taken as they are, and have them now", keys_path, n)
            values = np.memmap(values_path, self.dtype, "r", shape=(n, self.width))
            beside = sums_path.with_suffix(f".sums-{os.getpid()}")
            sums_of(np.fromfile(keys_path, KEY, n), values).tofile(beside)
            os.replace(beside, sums_path)

    def __len__(self) -> int:
        return len(self.row_of)

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """The row of each text's answer, int64 [N]; -1 where there is none yet."""
        return np.fromiter((self.row_of.get(key, -1) for key in keys_of(texts).tolist()), np.int64, len(texts))

    def gather(self, rows: np.ndarray, columns: slice = slice(None)) -> np.ndarray:
        """The answers in these rows, or some columns of them, [len(rows), width]. Raises DamagedRows where a checksum is not right."""
        out = np.empty((len(rows), len(range(self.width)[columns])), self.dtype)
        damaged = [np.empty(0, np.int64)]
        for part, start in zip(self.parts, self.starts, strict=False):
            here = np.flatnonzero((rows >= start) & (rows < start + len(part.keys)))
            own = rows[here] - start
            values = part.values[own]
            bad = sums_of(part.keys[own], values) != part.sums[own]
            damaged.append(rows[here[bad]])
            out[here] = values[:, columns]
        if len(wrong := np.unique(np.concatenate(damaged))):
            raise DamagedRows(self.folder, wrong)
        return out

    def strike(self, rows: np.ndarray) -> None:
        """Takes damaged rows out, so that their texts have no answer and the next fill asks for them."""
        for part, start in zip(self.parts, self.starts, strict=False):
            own = rows[(rows >= start) & (rows < start + len(part.keys))] - start
            if len(own):
                with open(part.keys_path, "r+b") as keys:
                    for row in own.tolist():
                        keys.seek(row * KEY.itemsize)
                        keys.write(STRUCK)
        self.reload()

    def fill(
        self,
        texts: Sequence[str],
        answer: Callable[[list[str]], np.ndarray],
        chunk: int = CHUNK,
        what: str = "teacher answers",
    ) -> int:
        """Asks `answer` for the texts that have no row yet, appends what it says, and returns how many were asked.

        answer: texts -> [n, width]. A killed fill loses at most one chunk. Raises UserError if an answer is not finite.
        """
        chunks = [texts[start : start + chunk] for start in range(0, len(texts), chunk)]
        return self.fill_by_piece(chunks, whole(answer), what)

    def fill_by_piece(self, chunks: Sequence[Sequence[str]], answers: Pieces, what: str = "teacher answers") -> int:
        """As fill, a chunk of texts after the other, of an `answers` that gives a chunk's in pieces. A killed fill loses at most one
        piece."""
        given = sum(map(len, chunks))
        seen = set(self.row_of)
        missing: list[list[str]] = []
        for texts in chunks:
            keys_here = keys_of(texts).tolist()
            fresh = {key: text for key, text in zip(keys_here, texts, strict=True) if key not in seen}
            seen |= fresh.keys()
            missing.append(list(fresh.values()))
        total = sum(map(len, missing))
        if not total:
            return 0
        with naming(self.folder), self._own_part() as append, progress(what, total, "texts") as meter:
            for batch in filter(None, missing):
                for places, found in answers(batch):
                    asked = [batch[i] for i in places]
                    append(asked, self._checked(asked, found))
                    meter.advance(len(asked))
        self.reload()
        log.info("%s: %d asked, %d found in %s", what, total, given - total, self.folder)
        return total

    def _checked(self, asked: list[str], found: np.ndarray) -> np.ndarray:
        """Answers as rows of the cache's type. Raises UserError where one is not finite."""
        rows = np.ascontiguousarray(found, self.dtype)
        if rows.shape != (len(asked), self.width):
            raise ValueError(f"answer has shape {rows.shape}, not {(len(asked), self.width)}")
        bad = np.flatnonzero(~np.isfinite(rows).all(1))
        if len(bad):
            raise UserError(
                f"the teacher's answer to {asked[bad[0]][:80]!r} is not finite ({len(bad)} such in this piece)"
            )
        return rows

    @contextmanager
    def _own_part(self) -> Iterator[Callable[[list[str], np.ndarray], None]]:
        """A function that appends texts with their rows to a part that no other process writes."""
        for number in range(self.writer, self.writer + 10_000):
            stem = self.folder / f"part-{number:05d}"
            paths = [stem.with_suffix(f".{end}") for end in ("values", "sums", "keys")]
            if _rows(paths[2], KEY.itemsize) and not paths[1].exists():
                continue  # another process, which held it as we read it, appends without checksums
            with open(paths[0], "ab") as values, open(paths[1], "ab") as sums, open(paths[2], "ab") as keys:
                if try_lock(keys.fileno()) is False:
                    continue
                sizes = (self.row_bytes, SUM.itemsize, KEY.itemsize)
                # What a killed writer left half-written behind the last whole row is cut off before anything is appended.
                there = min(
                    file.seek(0, os.SEEK_END) // size for file, size in zip((values, sums, keys), sizes, strict=True)
                )
                for file, size in zip((values, sums, keys), sizes, strict=True):
                    file.truncate(there * size)

                def append(texts: list[str], rows: np.ndarray) -> None:
                    of = keys_of(texts)
                    for file, data in ((values, rows), (sums, sums_of(of, rows)), (keys, of)):
                        file.write(data.tobytes())
                        file.flush()
                        os.fsync(file.fileno())

                yield append
                return
        raise UserError(f"{self.folder} is being filled by too many processes; set another cache_dir")


def _rows(path: Path, size: int) -> int:
    """How many whole rows of `size` bytes a file holds; 0 where there is none."""
    return path.stat().st_size // size if path.exists() else 0
