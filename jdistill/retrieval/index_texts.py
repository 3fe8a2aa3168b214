"""The texts beside an index, one JSON string a line: found by where their lines begin, read when they are asked for."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path

import numpy as np

from jdistill.core.sorted_keys import keys_of_texts
from jdistill.data.text.stored_texts import LongTexts


def write_texts(path: Path, texts: Iterable[str]) -> None:
    """Writes a line for each text, ASCII alone, so that no text holds a line's end."""
    with path.open("w") as out:
        out.writelines(json.dumps(text) + "\n" for text in texts)


class IndexTexts(LongTexts):
    """Texts of a file of write_texts, of which eight bytes each are in memory. The file stays open: an index that is replaced meanwhile goes
    on being read as it was.

    Raises: ValueError for a line that holds no text.
    """

    def __init__(self, path: Path):
        self._file = path.open("rb")
        begins, at = array("q"), 0
        for number, line in enumerate(self._file, 1):
            if not (len(line.rstrip(b"\n")) > 1 and line.startswith(b'"') and line.rstrip(b"\n").endswith(b'"')):
                raise ValueError(f"{path.name} holds a row that is no text, in line {number}")
            begins.append(at)
            at += len(line)
        self._begins = np.frombuffer(begins, np.int64) if begins else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._begins)

    def take(self, rows: np.ndarray) -> list[str]:
        return list(self._texts(np.asarray(rows, np.int64)))

    def _texts(self, rows: np.ndarray) -> Iterator[str]:
        for begin in self._begins[rows].tolist():
            self._file.seek(begin)
            yield json.loads(self._file.readline())

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        return keys_of_texts(self.take(np.arange(len(self)) if rows is None else rows))

    def part(self, start: int, stop: int) -> IndexTexts:
        view = copy(self)
        view._begins = self._begins[start:stop]
        return view

    def __iter__(self) -> Iterator[str]:
        return self._texts(np.arange(len(self)))
