"""The teacher's answers, kept once on disk and found again by content.

An answer is a row of numbers for a text. Its key is a hash of the text; the folder's name is the teacher's
fingerprint, so another batch size, order, corpus or number of devices finds the same answers. Layout of one folder:

    about.json            what the answers are: readable, never needed to find them
    part-00000.values     rows, raw little-endian, appended (one part per writing process)
    part-00000.keys       16 bytes a row, appended after its values are on disk: a row counts once its key is there
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from jdistill.errors import UserError
from jdistill.progress import log, progress

KEY = np.dtype("V16")
CHUNK = 2048  # texts that are asked for at once; what a killed fill loses at most
# texts -> (rows int64 [m] among them, their answers [m, width]), in pieces and in an order of its own, each row once
Pieces = Callable[[list[str]], Iterable[tuple[np.ndarray, np.ndarray]]]


def default_folder() -> Path:
    """Where answers are kept when the config names no `cache_dir`: $XDG_CACHE_HOME/jdistill or ~/.cache/jdistill."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jdistill"


def keys_of(texts: Sequence[str]) -> np.ndarray:
    """The key of each text, [N] of 16 bytes."""
    return np.frombuffer(b"".join(hashlib.blake2b(t.encode(), digest_size=16).digest() for t in texts), KEY)


def whole(answer: Callable[[list[str]], np.ndarray]) -> Pieces:
    """All answers, [n, width] of n texts, as one piece."""
    return lambda texts: [(np.arange(len(texts)), answer(texts))]


class AnswerCache:
    """One kind of answer by one teacher: float rows of a fixed width.

    folder: made if absent. width, dtype: of one row. about: written to about.json for a person who looks. writer: the
    number of the process that appends (each process has a part of its own; all parts are read).
    """

    def __init__(
        self, folder: Path, width: int, dtype: str = "float32", about: dict[str, object] | None = None, writer: int = 0
    ):
        self.folder, self.width, self.dtype = folder, width, np.dtype(dtype)
        self.row_bytes = width * self.dtype.itemsize
        folder.mkdir(parents=True, exist_ok=True)
        self.values_path = folder / f"part-{writer:05d}.values"
        self.keys_path = folder / f"part-{writer:05d}.keys"
        description = {"width": width, "dtype": self.dtype.name}
        path = folder / "about.json"
        if path.is_file():
            found = {name: json.loads(path.read_text()).get(name) for name in description}
            if found != description:
                raise UserError(
                    f"{folder} holds answers of another shape ({found}, not {description}); delete it or set cache_dir"
                )
        elif writer == 0:
            beside = path.with_suffix(".tmp")
            beside.write_text(json.dumps(description | (about or {}), indent=2) + "\n")
            beside.replace(path)
        self.reload()

    def reload(self) -> None:
        """Reads the keys of all parts afresh; values stay on disk, memory-mapped."""
        self.parts: list[np.ndarray] = []
        keys: list[np.ndarray] = []
        for values in sorted(self.folder.glob("part-*.values")):
            path = values.with_suffix(".keys")
            n = path.stat().st_size // KEY.itemsize if path.exists() else 0
            n = min(n, values.stat().st_size // self.row_bytes)
            keys.append(np.fromfile(path, KEY, n) if n else np.empty(0, KEY))
            self.parts.append(
                np.memmap(values, self.dtype, "r", shape=(n, self.width))
                if n
                else np.empty((0, self.width), self.dtype)
            )
        self.starts = np.cumsum([0] + [len(k) for k in keys])
        all_keys = np.concatenate(keys) if keys else np.empty(0, KEY)
        self.row_of = {key: row for row, key in enumerate(all_keys.tolist())}

    def __len__(self) -> int:
        return len(self.row_of)

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """The row of each text's answer, int64 [N]; -1 where there is none yet."""
        return np.fromiter((self.row_of.get(key, -1) for key in keys_of(texts).tolist()), np.int64, len(texts))

    def gather(self, rows: np.ndarray, columns: slice = slice(None)) -> np.ndarray:
        """The answers in these rows, or some columns of them, [len(rows), width]."""
        out = np.empty((len(rows), len(range(self.width)[columns])), self.dtype)
        for part, start in zip(self.parts, self.starts, strict=False):
            here = (rows >= start) & (rows < start + len(part))
            out[here] = part[:, columns][rows[here] - start]
        return out

    def fill(
        self,
        texts: Sequence[str],
        answer: Callable[[list[str]], np.ndarray],
        chunk: int = CHUNK,
        what: str = "teacher answers",
    ) -> int:
        """Asks `answer` for the texts that have no row yet, appends what it says, and returns how many were asked.

        answer: texts -> [n, width]. A killed fill loses at most one chunk. Raises UserError if an answer is not finite
        or another process is filling the same part.
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
        with open(self.values_path, "ab") as values, open(self.keys_path, "ab") as keys:
            try:
                fcntl.flock(keys, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"another process is filling {self.folder}; wait for it, or set another cache_dir"
                ) from None
            # What a killed writer left half-written behind the last whole row is cut off before anything is appended.
            rows_there = min(keys.seek(0, os.SEEK_END) // KEY.itemsize, values.seek(0, os.SEEK_END) // self.row_bytes)
            keys.truncate(rows_there * KEY.itemsize)
            values.truncate(rows_there * self.row_bytes)
            with progress(what, total, "texts") as meter:
                for batch in filter(None, missing):
                    for places, found in answers(batch):
                        asked = [batch[i] for i in places]
                        rows = np.ascontiguousarray(found, self.dtype)
                        if rows.shape != (len(asked), self.width):
                            raise ValueError(f"answer has shape {rows.shape}, not {(len(asked), self.width)}")
                        bad = np.flatnonzero(~np.isfinite(rows).all(1))
                        if len(bad):
                            raise UserError(
                                f"the teacher's answer to {asked[bad[0]][:80]!r} is not finite ({len(bad)} such in this piece)"
                            )
                        for file, data in ((values, rows.tobytes()), (keys, keys_of(asked).tobytes())):
                            file.write(data)
                            file.flush()
                            os.fsync(file.fileno())
                        meter.advance(len(asked))
        self.reload()
        log.info("%s: %d asked, %d found in %s", what, total, given - total, self.folder)
        return total
