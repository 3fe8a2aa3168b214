"""The teacher's answers, kept once on disk and found again by content.

An answer is a row of numbers for a text. Its key is a hash of the text; the folder's name is the teacher's
fingerprint, so another batch size, order, corpus or number of devices finds the same answers. One folder holds
about.json, which says what the answers are (readable, never needed to find them), and the parts (cache_parts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path

import numpy as np

from jdistill.core.cache_mirror import sync_parts
from jdistill.core.errors import UserError
from jdistill.core.files import naming
from jdistill.core.mapped import release, slices_of
from jdistill.core.open_files import allow_open_files
from jdistill.core.progress import log, progress
from jdistill.core.sorted_keys import BUCKET_ROWS, keys_of_texts
from jdistill.teachers.cache_about import check_shape
from jdistill.teachers.cache_parts import STRUCK_KEY, Part, RowType, append_to_parts, read_parts
from jdistill.teachers.fills_beside import FillsBeside
from jdistill.teachers.missing import LOOKED_UP, find_missing

CHUNK = 2048  # texts that are asked for at once; what a killed fill loses at most
MOST_CHECKED = 1_000_000  # answers that a fill does not ask for and yet looks at, a few seconds
# texts -> (rows int64 [m] among them, their answers [m, width]), in pieces and in an order of its own, each row once
Pieces = Callable[[list[str]], Iterable[tuple[np.ndarray, np.ndarray]]]


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
      writer: the number of the process that appends; where another holds that part, the next free one is taken. All parts are read.

    Raises: UserError for a folder of answers of another width or type.
    """

    def __init__(
        self, folder: Path, width: int, dtype: str = "float32", about: dict[str, object] | None = None, writer: int = 0
    ):
        self.folder, self.width, self.dtype, self.writer = folder, width, np.dtype(dtype), writer
        self.row_type = RowType(width, self.dtype)
        self.parts: list[Part] = []
        self._others_checked = False
        allow_open_files()
        folder.mkdir(parents=True, exist_ok=True)
        sync_parts(folder)
        check_shape(folder, self.row_type, about or {}, writes=writer == 0)
        self.reload()

    def opened_again(self) -> AnswerCache:
        """The cache with what has been appended since, for a further fill: who reads this one is not disturbed by it."""
        again = copy(self)
        sync_parts(self.folder)
        again.reload()
        return again

    def reload(self) -> None:
        """Opens what has come to the parts since they were opened; their keys and values stay on disk, memory-mapped."""
        self.parts = read_parts(self.folder, self.row_type, self.parts)
        self.starts = np.cumsum([0] + [len(part) for part in self.parts])

    def __len__(self) -> int:
        return sum(len(rows) for rows in self._live_rows())

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """The row of each text's answer, int64 [N]; -1 where there is none yet."""
        return self.find(keys_of_texts(texts))

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The row of the answer to each key, [N] of 16 bytes: int64 [N]; -1 where there is none yet."""
        rows = np.full(len(keys), -1, np.int64)
        for part, start in zip(self.parts, self.starts, strict=False):  # of an answer that is there twice, the later
            of_part = part.index.find(keys)
            rows = np.where(of_part >= 0, of_part + start, rows)
        self.release()
        return rows

    def lacks(self, texts: Sequence[str]) -> int:
        """How many of the texts have no answer."""
        return sum(int((self.rows(texts[block]) < 0).sum()) for block in slices_of(len(texts), LOOKED_UP))

    def release(self) -> None:
        """Takes what was read of the parts out of resident memory."""
        for part in self.parts:
            release(part.keys, part.sums, part.values, part.index.kept.first, part.index.kept.rows)

    def _live_rows(self, without: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """The rows that are somebody's answer, int64, in blocks from the last to the first; `without`, bool [rows], are not looked up."""
        for part, start in reversed(list(zip(self.parts, self.starts, strict=False))):
            for block in reversed(list(slices_of(len(part), BUCKET_ROWS))):
                keys, rows = np.array(part.keys[block]), start + np.arange(block.start, block.stop)
                ours = (keys != STRUCK_KEY) & (True if without is None else ~without[rows])
                yield rows[ours][self.find(keys[ours]) == rows[ours]]

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
        self.release()
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

        Returns: how many texts had no answer; others, that fill it beside this process, may have asked for some.

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

        Returns: how many texts had no answer; others, that fill it beside this process, may have asked for some.

        Raises: Stopped after the piece in hand, within stopping_by, where a signal came.
        """
        missing = find_missing(self.find, int(self.starts[-1]), chunks, self.folder)
        total = missing.count
        if not total:
            return 0
        beside = FillsBeside(self.folder, self.row_type, self.parts)
        if not self._others_checked:  # once: the others of a later fill are, for the most part, answers to this one
            self._strike_damaged_keys(missing.wanted)
            self._others_checked = True

        def pieces() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for batch in beside.still_missing(chunks, missing.masks, meter.advance):
                for rows, answer in answer_pieces(batch):
                    asked = [batch[i] for i in rows]
                    yield keys_of_texts(asked), self._checked(asked, answer)

        with naming(self.folder), progress(what, total, "texts") as meter:
            append_to_parts(self.folder, self.row_type, self.writer, pieces(), beside.begin, meter.advance)
        self.reload()
        asked_here = total - beside.answered
        log.info("%s: %d asked, %d found in %s", what, asked_here, sum(map(len, chunks)) - asked_here, self.folder)
        return total

    def _strike_damaged_keys(self, wanted: np.ndarray) -> None:
        """Looks whether a text is missing because a byte of its key has changed: the row is then there under a key that nobody asks for.
        Of more than MOST_CHECKED such rows, the answers to other corpora, the last ones are looked at.

        Args:
          wanted: bool [rows], of the answers that are asked for.
        """
        others = [np.empty(0, np.int64)]
        for live in self._live_rows(without=wanted):
            others.insert(0, live)
            if sum(map(len, others)) >= MOST_CHECKED:
                break
        rows = np.concatenate(others)[-MOST_CHECKED:]
        damaged: list[int] = []
        for block in slices_of(len(rows), CHUNK):
            try:
                self.gather(rows[block])
            except DamagedRows as error:
                damaged += error.rows.tolist()
        if damaged:
            log.warning(
                "%d answers in %s are damaged, their keys too; whose they were cannot be known, and they are asked again",
                len(damaged), self.folder,
            )  # fmt: skip
            self.strike(np.array(damaged))

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
