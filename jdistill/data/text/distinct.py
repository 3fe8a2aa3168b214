"""The distinct usable texts of a source, written to a file in one pass: those that come again are told by their sorted keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from jdistill.core.mapped import map_rows, release, slices_of
from jdistill.core.sorted_keys import BUCKET_ROWS, KEY, keys_of_texts, sort_keys
from jdistill.data.text.readers import NumberedText
from jdistill.data.text.text_file import TextFile, TextWriter
from jdistill.data.text.usable import Skipped, usable

TEXTS_FILE, KEYS_FILE = "texts.arrow", "keys.bin"
ROW_NUMBER = np.dtype("<i8")
HELD = 1 << 13  # texts whose keys and numbers are written at once

# Where rows come from ("FILE line"), and the rows.
RowGroup = tuple[str, Iterable[NumberedText]]


def write_distinct(row_groups: Iterable[RowGroup], folder: Path) -> Skipped:
    """Writes the stripped, valid, distinct texts of a source into a folder, in their order: TEXTS_FILE, and their keys, KEYS_FILE.

    Memory holds some thousand texts, and while repeats are looked for a byte a text.

    Args:
      row_groups: the source's rows.
      folder: empty.

    Returns: what was skipped.
    """
    skipped, numbers = Skipped(), folder / "numbers.bin"
    starts: list[tuple[int, str]] = []  # the first text of each place
    count = 0
    with (
        TextWriter(folder / TEXTS_FILE) as texts,
        open(folder / KEYS_FILE, "wb") as keys,
        open(numbers, "wb") as row_numbers,
    ):
        held: list[str] = []
        held_numbers: list[int] = []

        def write() -> None:
            keys.write(keys_of_texts(held).tobytes())
            row_numbers.write(np.array(held_numbers, ROW_NUMBER).tobytes())
            held.clear()
            held_numbers.clear()

        for where, rows in row_groups:
            starts.append((count, where))
            for number, row in rows:
                text, flaw = usable(row)
                if flaw:
                    skipped.add(flaw, f"{where} {number}", count)
                    continue
                texts.add(text)
                held.append(text)
                held_numbers.append(number)
                count += 1
                if len(held) == HELD:
                    write()
        write()
    _drop_repeats(folder, count, starts, skipped)
    numbers.unlink()
    return skipped


def _drop_repeats(folder: Path, count: int, starts: list[tuple[int, str]], skipped: Skipped) -> None:
    """Writes the files anew without the texts that come again, where there are any, and counts those."""
    keys, order = map_rows(folder / KEYS_FILE, KEY, count), folder / "order.bin"
    again = sort_keys(keys, order if count > BUCKET_ROWS else None).repeats()
    order.unlink(missing_ok=True)
    if not again.any():
        return
    first = int(np.argmax(again))
    where = next(where for start, where in reversed(starts) if start <= first)
    number = int(map_rows(folder / "numbers.bin", ROW_NUMBER, count)[first])
    skipped.add("repeated", f"{where} {number}", first, int(again.sum()))
    file = TextFile(folder / TEXTS_FILE)
    with TextWriter(folder / "distinct.arrow") as texts, open(folder / "distinct.bin", "wb") as kept:
        for array in file.without(again):
            texts.add_array(array)
        for block in slices_of(count, BUCKET_ROWS):
            kept.write(keys[block][~again[block]].tobytes())
            release(keys)
    (folder / "distinct.arrow").replace(folder / TEXTS_FILE)
    (folder / "distinct.bin").replace(folder / KEYS_FILE)


def numbered(texts: Iterable[str]) -> Iterator[NumberedText]:
    """Texts as rows, numbered from 1."""
    return enumerate(texts, 1)
