"""Text sources: a file, a folder, a URL, a datasets id or a scheme becomes clean, distinct texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.fetched import local_copy, versions_of
from jdistill.core.remote import is_url
from jdistill.data.text.columns import cells, text_column
from jdistill.data.text.hub import dataset_table
from jdistill.data.text.locations import files_of, local_path
from jdistill.data.text.readers import TABLE_SUFFIXES, TEXT_SUFFIXES, NumberedText, file_rows, kind, regular
from jdistill.data.text.schemes import reader_of
from jdistill.data.text.usable import Skipped, flaw_of, usable


@dataclass(frozen=True)
class TextRows:
    """texts: distinct, stripped, valid, in the source's order. skipped: rows left out, by reason. source: as given."""

    texts: list[str]
    skipped: dict[str, int]
    source: str


def read_texts(source: str, column: str = "", key: str = "config.text", at_most: int = 0) -> TextRows:
    """Reads text from a file, a folder of files, a URL or `pkg:` to either, a datasets id, or a scheme (python-docs).

    Files: .txt (one text a line), .csv, .tsv (no quoting) and .jsonl, each also as .gz, and .parquet. A folder is read
    through, in the order of the names. A datasets id is owner/name or owner/name:subset; its train split is read.
    column: of a table; it may be empty where one column alone holds strings. Texts are stripped. Empty, blank, broken,
    over-long (MAX_CHARS) and repeated ones are skipped and counted, the first place of each reason is logged. at_most: reads
    no further than so many texts; 0: all. Raises UserError for a damaged file, a missing column, or no usable text at all.
    """
    gathered = _Gathered(at_most)
    for where, rows in open_source(source, column, key).row_groups():
        gathered.add_all(where, rows)
        if gathered.full:
            break
    gathered.skips.tell(source, key, len(gathered.texts))
    return TextRows(list(gathered.texts), gathered.skipped, source)


@dataclass(frozen=True)
class OpenSource:
    """A source before its rows are read.

    Args:
      name: of a local one its absolute path, else as given.
      identity: another where its rows may have changed; None: nothing tells without reading them.
      row_groups: () -> where its rows come from ("FILE line"), and the rows, piece by piece.
    """

    name: str
    identity: list[Any] | None
    row_groups: Callable[[], Iterator[tuple[str, Iterator[NumberedText]]]]


def open_source(source: str, column: str, key: str, of_tables: bool = False) -> OpenSource:
    """Finds a source. Raises UserError where there is none. Arguments as in read_texts; of_tables: of a folder its tables alone.

    Files are told by path, size and the times of their last change (content and inode), those of a store by what it says of them, a
    dataset by its fingerprint.
    """
    reader, suffixes = reader_of(source, key), TABLE_SUFFIXES if of_tables else TEXT_SUFFIXES
    if reader is not None:
        rest = source.partition(":")[2]
        return OpenSource(source, None, lambda: iter([(f"{source} row", reader(rest, column, key))]))
    if is_url(source):  # fetched where its rows are asked for alone
        identity: list[Any] = [[name, *version] for name, version in versions_of(source, key).items()]
        return OpenSource(
            source, identity, lambda: _file_groups(files_of(local_copy(source, key), suffixes, key), column, key)
        )
    path = local_path(source, key)
    if path is None:
        table = dataset_table(source, key)
        identity = [str(getattr(table, "_fingerprint", "")), len(table)]
        return OpenSource(source, identity, lambda: iter([(f"{source} row", _table_rows(table, source, column, key))]))
    files = files_of(path, suffixes, key)
    identity = [file_identity(file) for file in files]
    return OpenSource(os.path.abspath(path), identity, lambda: _file_groups(files, column, key))


def _file_groups(files: Iterable[Path], column: str, key: str) -> Iterator[tuple[str, Iterator[NumberedText]]]:
    for file in files:
        yield f"{file} {'row' if kind(file) == '.parquet' else 'line'}", file_rows(file, column, key)


def file_identity(path: Path) -> list[Any]:
    """JSON that is another where a file may have changed. Raises UserError for what is no file."""
    about = regular(path).stat()
    return [os.path.abspath(path), about.st_size, about.st_mtime_ns, about.st_ctime_ns]


def read_columns(source: str, column: str, other: str, key: str) -> Iterator[tuple[str, str]]:
    """The texts of two columns, row by row, stripped; rows where either cannot be used are left out.

    source: as read_texts, but a table. key: the config key that names `other`. Raises UserError as read_texts does.
    """
    reader = reader_of(source, "config.text")
    path = None if reader else local_path(source, "config.text")
    if reader or (path is not None and kind(files_of(path, TEXT_SUFFIXES, "config.text")[0]) == ".txt"):
        raise UserError(f"--{key}=column:{other}: --config.text={source} has no columns")
    named = f"{key}=column"
    tables: list[tuple[Iterator[Any], Iterator[Any]]]
    if path is None:
        tables = [(_dataset_rows(source, column, "config.text"), _dataset_rows(source, other, named))]
    else:
        files = files_of(path, TEXT_SUFFIXES, "config.text")
        tables = [(file_rows(file, column, "config.text"), file_rows(file, other, named)) for file in files]
    for texts, others in tables:
        for (_, text), (_, beside) in zip(texts, others, strict=True):
            pair = [cell.decode(errors="replace") if isinstance(cell, bytes) else cell for cell in (text, beside)]
            left, right = (cell.strip() if isinstance(cell, str) else "" for cell in pair)
            if not flaw_of(left) and not flaw_of(right):
                yield left, right


def _dataset_rows(source: str, column: str, key: str) -> Iterator[tuple[int, bytes | None]]:
    return _table_rows(dataset_table(source, key), source, column, key)


def _table_rows(table: Any, source: str, column: str, key: str) -> Iterator[tuple[int, bytes | None]]:
    chosen = text_column(column, table.features.arrow_schema, source, key)
    return cells(batch[chosen] for batch in table.select_columns([chosen]).with_format("arrow").iter(10_000))


class _Gathered:
    """Distinct usable texts in memory, and what was skipped. at_most: so many texts; 0: all."""

    def __init__(self, at_most: int = 0) -> None:
        self.texts: dict[str, None] = {}
        self.skips = Skipped()
        self._at_most = at_most

    @property
    def full(self) -> bool:
        """Whether it takes no more texts."""
        return 0 < self._at_most <= len(self.texts)

    @property
    def skipped(self) -> dict[str, int]:
        return self.skips.counts

    def add_all(self, where: str, rows: Iterator[NumberedText]) -> None:
        for number, row in rows:
            text, flaw = usable(row)
            if not flaw and text in self.texts:
                flaw = "repeated"
            if flaw:
                self.skips.add(flaw, f"{where} {number}", 0)
            else:
                self.texts[text] = None
                if self.full:
                    return
