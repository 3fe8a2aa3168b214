"""Parallel text: sources and their translations, read from tables, kept as an Arrow file, and each side of it as a sequence of texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.sorted_keys import keys_of_texts
from jdistill.data.text.distinct import RowGroup
from jdistill.data.text.kept_texts import KeptTexts, keep_rows
from jdistill.data.text.records import has_surplus, records_of
from jdistill.data.text.sources import open_source
from jdistill.data.text.stored_texts import LongTexts, StoredTexts
from jdistill.data.text.usable import SURPLUS_CELLS, FlawedRow, flaw_of

FORMAT_OF_PAIRS = "pairs 1"  # another name for other pairs of the same source
KEPT_PAIRS = "pairs 2"  # another name for another reading of it
SOURCE_COLUMNS, TRANSLATION_COLUMNS = ("source", "english"), ("translation", "translations", "non_english")
PREFIX = "translation_"  # of further columns; what follows names the language


class ParallelPair(NamedTuple):
    """A text and its translation.

    Args:
      source: in the language that the teacher reads.
      translation: of it.
      language: what the file calls it: what follows translation_ in the column's name; "": nothing.
    """

    source: str
    translation: str
    language: str


def keep_pairs(source: str, key: str, folder: Path) -> KeptTexts:
    """The distinct pairs of a table, kept in a folder and found there again, each as JSON: `as_pair` reads it.

    Args:
      source: .csv, .tsv, .jsonl or .parquet, a folder of those, or a datasets id, whose columns are one of SOURCE_COLUMNS and one or
        more of TRANSLATION_COLUMNS or translation_NAME. A translation may be a list of translations.
      key: the config key that names it.
      folder: of all that is kept.

    Raises: UserError for other columns, a damaged file, and no usable pair.
    """
    opened = open_source(source, "", key)
    rows: list[RowGroup] = [(f"{source} row", _rows(source, key))]
    return keep_rows(lambda: rows, source, key, digest(KEPT_PAIRS, opened.name), opened.identity, folder)


def as_pair(row: str) -> ParallelPair:
    """A pair as it was kept."""
    return ParallelPair(*json.loads(row))


def _rows(source: str, key: str) -> Iterator[tuple[int, str | FlawedRow]]:
    """Each pair with the number of its row, or why there is none."""
    for number, (place, record) in enumerate(records_of(source, key), 1):
        if not isinstance(record, dict):
            raise UserError(f"{place}: a row must be an object, not {type(record).__name__}")
        of_source = next((name for name in SOURCE_COLUMNS if name in record), None)
        of_translations = [name for name in record if name in TRANSLATION_COLUMNS or str(name).startswith(PREFIX)]
        if number == 1 and (of_source is None or not of_translations):
            raise UserError(
                f"{place}: --{key} needs the columns source and translation (or {PREFIX}de, {PREFIX}fr …); there are "
                f"{', '.join(sorted(map(str, record)))}"
            )
        if number == 1 and all(name in record for name in SOURCE_COLUMNS):
            raise UserError(
                f"{place}: --{key} reads the source from one column, and there are {' and '.join(SOURCE_COLUMNS)}; rename or drop the one "
                "that is none"
            )
        if has_surplus(record):
            yield number, SURPLUS_CELLS
            continue
        text = _text(record, of_source, place)
        translations = [
            (_stripped(each, name, place), name.removeprefix(PREFIX) if name.startswith(PREFIX) else "")
            for name in of_translations
            for each in _listed(record[name])
        ]
        yield from ((number, row) for row in _pairs(text, [(each, name) for each, name in translations if each]))


def _listed(cell: Any) -> list[Any]:
    """The translations of a cell: a list, a list that a table without lists writes as JSON, or one text."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            listed = json.loads(cell)
        except (ValueError, RecursionError):  # a text that begins so
            return [cell]
        return listed if isinstance(listed, list) and all(isinstance(each, str) for each in listed) else [cell]
    return cell if isinstance(cell, list) else [cell]


def _pairs(text: str, translations: list[tuple[str, str]]) -> Iterator[str | FlawedRow]:
    if not text or not translations:
        yield FlawedRow("without a translation" if text else "without a source")
        return
    for translation, language in translations:
        if flaw := flaw_of(text) or flaw_of(translation):
            yield FlawedRow(flaw)
        elif text == translation:
            yield FlawedRow("whose translation is the source itself")
        else:
            yield json.dumps(ParallelPair(text, translation, language), ensure_ascii=False)


def _text(record: dict[Any, Any], column: str | None, place: str) -> str:
    return "" if column is None else _stripped(record[column], column, place)


def _stripped(value: Any, column: str, place: str) -> str:
    if not isinstance(value, str | None):
        raise UserError(f"{place}: {column} holds {type(value).__name__} where a text belongs")
    return (value or "").strip()


class PairSide(LongTexts):
    """The sources or the translations of kept pairs, one a pair.

    Args:
      pairs: as `keep_pairs` keeps them.
      field: of ParallelPair, "source" or "translation".
      fingerprint: another for other pairs.
    """

    def __init__(self, pairs: StoredTexts, field: str, fingerprint: str | None = None):
        self._pairs, self._field = pairs, field
        self.fingerprint = digest(FORMAT_OF_PAIRS, field, fingerprint) if fingerprint else None

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[str]:
        return (getattr(as_pair(row), self._field) for row in self._pairs)

    def take(self, rows: np.ndarray) -> list[str]:
        return [getattr(as_pair(row), self._field) for row in self._pairs.take(rows)]

    def text_keys(self, rows: np.ndarray | None = None) -> np.ndarray:
        return keys_of_texts(iter(self) if rows is None else self.take(rows))

    def part(self, start: int, stop: int) -> PairSide:
        return self if (start, stop) == (0, len(self)) else PairSide(self._pairs.part(start, stop), self._field)
