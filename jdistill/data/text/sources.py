"""Text sources: a file, a folder, a datasets id or a scheme becomes clean, distinct texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.text.hub import dataset_table
from jdistill.data.text.locations import files_of, local_path
from jdistill.data.text.readers import (
    MAX_CHARS,
    TEXT_SUFFIXES,
    cells,
    file_rows,
    has_surrogate,
    kind,
    pick_column,
    string_columns,
)
from jdistill.data.text.schemes import reader_of


@dataclass(frozen=True)
class TextRows:
    """texts: distinct, stripped, valid, in the source's order. skipped: rows left out, by reason. source: as given."""

    texts: list[str]
    skipped: dict[str, int]
    source: str


def read_texts(source: str, column: str = "", key: str = "config.text") -> TextRows:
    """Reads text from a file, a folder of files, `pkg:` to either, a datasets id, or a scheme (python-docs).

    Files: .txt (one text a line), .csv, .tsv (no quoting) and .jsonl, each also as .gz, and .parquet. A folder is read
    through, in the order of the names. A datasets id is owner/name or owner/name:subset; its train split is read.
    column: of a table; it may be empty where one column alone holds strings. Texts are stripped. Empty, blank, broken,
    over-long (MAX_CHARS) and repeated ones are skipped and counted, the first place of each reason is logged. Raises
    UserError for a damaged file, a missing column, or no usable text at all.
    """
    gathered, reader = _Gathered(), reader_of(source, key)
    path = None if reader else local_path(source, key)
    if reader is not None:
        gathered.add_all(f"{source} row", reader(source.partition(":")[2], column, key))
    elif path is None:
        gathered.add_all(f"{source} row", _dataset_rows(source, column, key))
    else:
        for file in files_of(path, TEXT_SUFFIXES, key):
            gathered.add_all(f"{file} {'row' if kind(file) == '.parquet' else 'line'}", file_rows(file, column, key))
    first = gathered.first
    skipped = ", ".join(f"{count} {reason} (first: {first[reason]})" for reason, count in gathered.skipped.items())
    if not gathered.texts:
        raise UserError(f"--{key}={source} holds no usable text: {f'skipped {skipped}' if skipped else 'it is empty'}")
    if skipped:
        log.warning("%s: skipped %s", source, skipped)
    return TextRows(list(gathered.texts), gathered.skipped, source)


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
            left, right = ((cell or "").strip() for cell in pair)
            if not flaw_of(left) and not flaw_of(right):
                yield left, right


def _dataset_rows(source: str, column: str, key: str) -> Iterator[tuple[int, bytes | None]]:
    table = dataset_table(source, key)
    chosen = pick_column(column, string_columns(table.features.arrow_schema), table.column_names, source, key)
    return cells(batch[chosen] for batch in table.select_columns([chosen]).with_format("arrow").iter(10_000))


def flaw_of(text: str) -> str:
    """Why a stripped text cannot be used, in a word or two; empty for one that can."""
    if not text:
        return "blank"
    if len(text) > MAX_CHARS:
        return "too long"
    if "\0" in text:
        return "with NUL"
    return "with a lone surrogate" if has_surrogate(text) else ""


class _Gathered:
    """Distinct usable texts, and what was skipped: how often, and where first."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}
        self.skipped: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def add_all(self, where: str, rows: Iterator[tuple[int, str | bytes | None]]) -> None:
        for row, text in rows:
            if reason := self._add(text):
                self.skipped[reason] = self.skipped.get(reason, 0) + 1
                self.first.setdefault(reason, f"{where} {row}")

    def _add(self, text: str | bytes | None) -> str:
        """Takes a text in, or says why not. text: a string, bytes to be decoded, or None: too long for the reader."""
        if text is None or len(text) > 4 * MAX_CHARS:
            return "too long"
        if not text:
            return "empty"
        if isinstance(text, bytes):
            try:
                text = text.decode()
            except UnicodeDecodeError:
                return "with invalid UTF-8"
        text = text.strip()
        flaw = flaw_of(text)
        if not flaw and text in self.texts:
            return "repeated"
        if not flaw:
            self.texts[text] = None
        return flaw
