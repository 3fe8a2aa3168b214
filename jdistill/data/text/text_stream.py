"""A text source as a stream: its usable texts in their order, each with its id where a column names one, in bounded memory.

Unlike sources.read_texts it keeps nothing: a text that comes again comes again, with an id of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from jdistill.core.errors import UserError
from jdistill.data.text.columns import cells, pick_column, string_columns, text_column
from jdistill.data.text.hub import dataset_table
from jdistill.data.text.locations import files_of, local_path
from jdistill.data.text.readers import TEXT_SUFFIXES, NumberedText, damaged, file_rows, kind, open_text
from jdistill.data.text.schemes import reader_of
from jdistill.data.text.usable import FlawedRow, Skipped, has_surrogate, usable

READ_ROWS = 10_000  # of a table at a time


class StreamedText(NamedTuple):
    """A usable text, stripped, and its id; "" where the stream has none."""

    text: str
    id: str


@dataclass
class TextStream:
    """The texts of a source; to be gone through as often as wanted.

    Args:
      source: whatever read_texts takes.
      column: of the text, of a table; "": the only one of strings.
      id_column: of the ids, strings or whole numbers, of a table; "": the texts have none.
      key: the flag that names the source, for messages.
      skipped: the rows that the last pass left out.
    """

    source: str
    column: str = ""
    id_column: str = ""
    key: str = "text"
    skipped: Skipped = field(default_factory=Skipped)

    def __iter__(self) -> Iterator[StreamedText]:
        """The usable texts in their order. Raises UserError as read_texts does, for a row without id, and where there is no text."""
        self.skipped = Skipped()
        count = 0
        for where, rows, ids in self._tables():
            for (row, cell), number in zip(rows, ids, strict=False):
                text, flaw = usable(cell)
                if flaw:
                    self.skipped.add(flaw, f"{where} {row}", count)
                    continue
                if self.id_column and not number.strip():
                    raise UserError(f"{where} {row}: column {self.id_column!r} holds no id; give every text one")
                if has_surrogate(number):
                    raise UserError(
                        f"{where} {row}: column {self.id_column!r} holds an id with half a character (a lone surrogate)"
                    )
                count += 1
                yield StreamedText(text, number)
        self.skipped.refuse_none(self.source, self.key, count)

    def log_skipped(self) -> None:
        """Says what the last pass left out, and where each reason was met first."""
        self.skipped.warn(self.source)

    def _tables(self) -> Iterator[tuple[str, Iterable[NumberedText], Iterable[str]]]:
        """(what a row is called, its text cells, its ids) of each file of the source, or of all of it."""
        reader = reader_of(self.source, self.key)
        if reader is not None:
            self._refuse_ids(self.source)
            yield f"{self.source} row", reader(self.source.partition(":")[2], self.column, self.key), repeat("")
        elif (path := local_path(self.source, self.key)) is None:
            table = dataset_table(self.source, self.key)
            names = table.column_names
            name = text_column(self.column, table.features.arrow_schema, self.source, f"{self.key}_column")
            ids: Iterable[str] = repeat("")
            if self.id_column:
                pick_column(self.id_column, [], names, self.source, "id_column")
                ids = _as_strings(_hub_batches(table, self.id_column), self.source, self.id_column)
            yield f"{self.source} row", cells(_hub_batches(table, name)), ids
        else:
            for file in files_of(path, TEXT_SUFFIXES, self.key):
                ids = _file_ids(file, self.id_column) if self.id_column else repeat("")
                if self.id_column and kind(file) == ".txt":
                    self._refuse_ids(str(file))
                what = "row" if kind(file) == ".parquet" else "line"
                yield f"{file} {what}", file_rows(file, self.column, self.key), ids

    def _refuse_ids(self, where: str) -> None:
        if self.id_column:
            raise UserError(f"--id_column={self.id_column}: {where} has no columns; leave --id_column out")


def _hub_batches(table: object, name: str) -> Iterator[pa.Array | pa.ChunkedArray]:
    batches = table.select_columns([name]).with_format("arrow").iter(READ_ROWS)  # type: ignore[attr-defined]
    return (batch[name] for batch in batches)


def _file_ids(path: Path, column: str) -> Iterator[str]:
    """The ids of a table's rows, in step with file_rows; "" for a row that has none."""
    match kind(path):
        case ".parquet":
            return _parquet_ids(path, column)
        case ".jsonl":
            return _jsonl_ids(path, column)
    return (_decoded(cell) for _, cell in file_rows(path, column, "id_column"))


def _decoded(cell: str | bytes | FlawedRow | None) -> str:
    if isinstance(cell, bytes):
        return cell.decode(errors="replace")
    return cell if isinstance(cell, str) else ""


def _jsonl_ids(path: Path, column: str) -> Iterator[str]:
    columns_known = False
    for number, line in enumerate(open_text(path, "replace"), 1):
        if not line.strip():
            yield ""
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):  # which the text's reader names
            yield ""
            continue
        if column not in record and columns_known:  # this row lacks it; where the first does, the name is wrong
            yield ""
            continue
        columns_known = True
        where = f"{path} line {number}"
        name = pick_column(column, [], list(record), where, "id_column")
        if record[name] is not None and (isinstance(record[name], bool) or not isinstance(record[name], str | int)):
            raise UserError(f"{where}: {name!r} holds {type(record[name]).__name__}, not a string or a whole number")
        yield "" if record[name] is None else str(record[name])


def _parquet_ids(path: Path, column: str) -> Iterator[str]:
    try:
        file = pq.ParquetFile(path)
        pick_column(column, [], file.schema_arrow.names, str(path), "id_column")
        batches = (batch.column(0) for batch in file.iter_batches(READ_ROWS, columns=[column]))
        yield from _as_strings(batches, str(path), column)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, error) from None


def _as_strings(columns: Iterable[pa.Array | pa.ChunkedArray], where: str, name: str) -> Iterator[str]:
    for column in columns:
        if not (pa.types.is_integer(column.type) or string_columns(pa.schema([(name, column.type)]))):
            raise UserError(f"{where}: column {name!r} holds {column.type}, not strings or whole numbers")
        for cell in column.cast(pa.large_string()).to_pylist():
            yield cell or ""
