"""The teacher's answers, kept once on disk and found again by content.

An answer is a row of numbers for a text. Its key is a hash of the text; the folder's name is the teacher's
fingerprint, so another batch size, order, corpus or number of devices finds the same answers. One folder holds
about.json, which says what the answers are (readable, never needed to find them), and the parts (cache_parts).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import naming
from jdistill.core.progress import log, progress
from jdistill.teachers.cache_parts import KEY, STRUCK, RowType, open_own_part, read_parts

CHUNK = 2048  # texts that are asked for at once; what a killed fill loses at most
SEPARATOR = "\x1f"  # between the two texts of a pair
MOST_CHECKED = 1_000_000  # answers that a fill does not ask for and yet looks at, a few seconds
# texts -> (rows int64 [m] among them, their answers [m, width]), in pieces and in an order of its own, each row once
Pieces = Callable[[list[str]], Iterable[tuple[np.ndarray, np.ndarray]]]


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """The key of each text, [N] of 16 bytes."""
    return np.frombuffer(b"".join(hashlib.blake2b(t.encode(), digest_size=16).digest() for t in texts), KEY)


def pair_keys(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Pairs of texts, one from each list, as the texts that a cache keeps answers of."""
    # A first text that held the separator would be answered as another pair.
    return [a.replace(SEPARATOR, " ") + SEPARATOR + b for a, b in zip(first, second, strict=True)]


def pairs_of_keys(keys: Sequence[str]) -> tuple[list[str], list[str]]:
    """The first and the second text of each pair; the inverse of pair_keys."""
    pairs = [key.split(SEPARATOR, 1) for key in keys]
    return [first for first, _ in pairs], [second for _, second in pairs]


def in_one_piece(answer: Callable[[list[str]], np.ndarray]) -> Pieces:
    """A function texts -> answers [n, width] as Pieces: all answers in one piece."""
    return lambda texts: [(np.arange(len(texts)), answer(texts))]


class DamagedRows(UserError):
    """Rows whose checksum is not that of what they hold.

    Args:
      folder: of the cache.
      rows: int64, as AnswerCache.rows gives them.
    """

    def __init__(self, folder: Path, rows: np.ndarray):
        super().__init__(
            f"{len(rows)} answers in {folder} are damaged; run the command again, which asks for them anew"
        )
        self.rows = rows


class AnswerCache:
    """One kind of answer by one teacher: rows of a fixed width, found by the text that they answer.

    Args:
      folder: made if absent.
      width: numbers of a row.
      dtype: of a number, float16 or float32.
      about: written to about.json for a person who looks.
      writer: the number of the process that appends; where another process holds that part, the next free one is taken. All parts
        are read.

    Raises: UserError for a folder of answers of another width or type.
    """

    def __init__(
        self, folder: Path, width: int, dtype: str = "float32", about: dict[str, object] | None = None, writer: int = 0
    ):
        self.folder, self.width, self.dtype, self.writer = folder, width, np.dtype(dtype), writer
        self.row_type = RowType(width, self.dtype)
        folder.mkdir(parents=True, exist_ok=True)
        self._describe(about or {})
        self.reload()

    def _describe(self, about: dict[str, object]) -> None:
        """Writes about.json. Raises UserError for a folder of answers of another shape."""
        description = {"width": self.width, "dtype": self.dtype.name}
        path = self.folder / "about.json"
        try:
            content = json.loads(path.read_text())
            earlier = {name: content[name] for name in description}
        except FileNotFoundError:
            earlier = None
        except (ValueError, KeyError, TypeError, RecursionError):
            log.warning("%s is damaged, and written again", path)
            earlier = None
        if earlier is None and self.writer == 0:
            # In place: nothing reads it but people and the check above, which writes a half one again.
            path.write_text(json.dumps(description | about, indent=2) + "\n")
        elif earlier is not None and earlier != description:
            raise UserError(
                f"{self.folder} holds answers of another shape ({earlier}, not {description}); delete it or set cache_dir"
            )

    def reload(self) -> None:
        """Reads the keys of all parts afresh; values stay on disk, memory-mapped."""
        self.parts = read_parts(self.folder, self.row_type)
        self.starts = np.cumsum([0] + [len(part) for part in self.parts])
        all_keys = np.concatenate([part.keys for part in self.parts]) if self.parts else np.empty(0, KEY)
        self.row_of = {key: row for row, key in enumerate(all_keys.tolist())}
        self.row_of.pop(STRUCK, None)

    def __len__(self) -> int:
        return len(self.row_of)

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """The row of each text's answer, int64 [N]; -1 where there is none yet."""
        return np.fromiter((self.row_of.get(key, -1) for key in text_keys(texts).tolist()), np.int64, len(texts))

    def gather(self, rows: np.ndarray, columns: slice = slice(None)) -> np.ndarray:
        """The answers in these rows.

        Args:
          rows: int64 [n], as `rows` gives them; none is -1.
          columns: of the answers.

        Returns: [n, width], or as many columns, of the cache's type.

        Raises: DamagedRows where a checksum is not right.
        """
        out = np.empty((len(rows), len(range(self.width)[columns])), self.dtype)
        damaged = [np.empty(0, np.int64)]
        for part, start in zip(self.parts, self.starts, strict=False):
            here = np.flatnonzero((rows >= start) & (rows < start + len(part)))
            values, bad = part.gather(rows[here] - start)
            damaged.append(rows[here[bad]])
            out[here] = values[:, columns]
        if len(wrong := np.unique(np.concatenate(damaged))):
            raise DamagedRows(self.folder, wrong)
        return out

    def strike(self, rows: np.ndarray) -> None:
        """Takes damaged rows, int64 [n], out, so that their texts have no answer and the next fill asks for them."""
        for part, start in zip(self.parts, self.starts, strict=False):
            own = rows[(rows >= start) & (rows < start + len(part))] - start
            if len(own):
                part.strike(own)
        self.reload()

    def fill(
        self,
        texts: Sequence[str],
        answer: Callable[[list[str]], np.ndarray],
        chunk: int = CHUNK,
        what: str = "teacher answers",
    ) -> int:
        """Asks for the texts that have no row yet, and appends the answers. A killed fill loses at most one chunk.

        Args:
          answer: n texts -> [n, width].
          chunk: texts asked for at once.
          what: the answers, for messages.

        Returns: how many texts were asked for.

        Raises: UserError where an answer is not finite.
        """
        chunks = [texts[start : start + chunk] for start in range(0, len(texts), chunk)]
        return self.fill_by_piece(chunks, in_one_piece(answer), what)

    def fill_by_piece(
        self, chunks: Sequence[Sequence[str]], answer_pieces: Pieces, what: str = "teacher answers"
    ) -> int:
        """As fill, a chunk of texts after the other. A killed fill loses at most one piece.

        Args:
          chunks: the texts.
          answer_pieces: gives a chunk's answers in pieces.
          what: the answers, for messages.

        Returns: how many texts were asked for.
        """
        missing = self._missing(chunks)
        total = sum(map(len, missing))
        if not total:
            return 0
        self._strike_damaged_keys(chunks)
        own_part = open_own_part(self.folder, self.row_type, self.writer)
        with naming(self.folder), own_part as append, progress(what, total, "texts") as meter:
            for batch in filter(None, missing):
                for rows, answer in answer_pieces(batch):
                    asked = [batch[i] for i in rows]
                    append(text_keys(asked), self._checked(asked, answer))
                    meter.advance(len(asked))
        self.reload()
        log.info("%s: %d asked, %d found in %s", what, total, sum(map(len, chunks)) - total, self.folder)
        return total

    def _strike_damaged_keys(self, chunks: Sequence[Sequence[str]]) -> None:
        """Looks whether a text is missing because a byte of its key has changed: the row is then there under a key that nobody asks for.
        Of more than MOST_CHECKED such rows, the answers to other corpora, the last ones are looked at."""
        if not self.row_of:
            return
        wanted = {key for texts in chunks for key in text_keys(texts).tolist()}
        others = np.fromiter((row for key, row in self.row_of.items() if key not in wanted), np.int64)[-MOST_CHECKED:]
        damaged: list[int] = []
        for start in range(0, len(others), CHUNK):
            try:
                self.gather(others[start : start + CHUNK])
            except DamagedRows as error:
                damaged += error.rows.tolist()
        if damaged:
            log.warning(
                "%d answers in %s are damaged, their keys too; whose they were cannot be known, and they are asked again",
                len(damaged), self.folder,
            )  # fmt: skip
            self.strike(np.array(damaged))

    def _missing(self, chunks: Sequence[Sequence[str]]) -> list[list[str]]:
        """The texts of each chunk that have no row yet, each text once."""
        seen = set(self.row_of)
        missing: list[list[str]] = []
        for texts in chunks:
            fresh = {key: text for key, text in zip(text_keys(texts).tolist(), texts, strict=True) if key not in seen}
            seen |= fresh.keys()
            missing.append(list(fresh.values()))
        return missing

    def _checked(self, asked: list[str], answer: np.ndarray) -> np.ndarray:
        """Answers as rows of the cache's type. Raises UserError where one is not finite."""
        rows = np.ascontiguousarray(answer, self.dtype)
        if rows.shape != (len(asked), self.width):
            raise ValueError(f"answer has shape {rows.shape}, not {(len(asked), self.width)}")
        bad = np.flatnonzero(~np.isfinite(rows).all(1))
        if len(bad):
            raise UserError(
                f"the teacher's answer to {asked[bad[0]][:80]!r} is not finite ({len(bad)} such in this piece)"
            )
        return rows
