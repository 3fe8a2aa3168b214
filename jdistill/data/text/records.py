"""Rows with named columns from a file, a folder of files or a datasets id, each with the place that an error names."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jdistill.core.errors import UserError, first_line
from jdistill.core.json_files import parse_json
from jdistill.core.progress import log
from jdistill.data.text.hub import dataset_splits, train_of
from jdistill.data.text.locations import files_of, local_path
from jdistill.data.text.quoting import check_separated, watched
from jdistill.data.text.readers import (
    TABLE_SUFFIXES,
    csv_dialect,
    csv_fault,
    kind,
    open_text,
    refuse_repeated,
    regular,
)

ROWS_AT_ONCE = 10_000  # of a parquet file


def records_of(source: str, key: str, splits: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """(place, record) of each row of files .jsonl, .csv, .tsv and .parquet, of folders of those, or of a datasets id
    (owner/name or owner/name:subset). Of a datasets id it is the train split, or these splits where it has them all: each row
    has then its split's name in a column "split". Raises UserError for a damaged file; what a record is, the caller checks."""
    path = local_path(source, key)
    if path is not None:
        for file in files_of(path, TABLE_SUFFIXES, key):
            yield from _records(file)
        return
    tables = dataset_splits(source, key)
    if splits and set(splits) <= set(tables):
        for split in splits:
            yield from ((place, row | {"split": split}) for place, row in _rows(f"{source} {split}", tables[split]))
        return
    if splits:
        log.info("%s: read as one, its train split, since it has not the splits %s", source, " and ".join(splits))
    yield from _rows(source, train_of(tables, source, key))


def cell_text(value: Any) -> str:
    """A cell as text: "" for none and NaN, as pandas writes a gap; a whole number without its point, as it has one beside a gap."""
    if value is None or value != value:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def has_surplus(record: Any) -> bool:
    """Whether a row of a .csv or .tsv has more cells than its header names: a comma within a text that has no quotes, say."""
    return isinstance(record, dict) and None in record  # csv's name for those cells


def _rows(source: str, table: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of a dataset's table."""
    names = {name: of.names for name, of in table.features.items() if hasattr(of, "names") and hasattr(of, "int2str")}
    for i, row in enumerate(table, 1):
        # A class is its name: which number an entailment is, each dataset has decided for itself.
        of_class = {
            name: classes[row[name]] for name, classes in names.items() if row[name] is not None and row[name] >= 0
        }
        yield f"{source} row {i}", row | of_class


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, record) of each row of a file."""
    match kind(path):
        case ".parquet":
            try:
                file = pq.ParquetFile(regular(path))
                refuse_repeated(str(path), names := file.schema_arrow.names, names)
                batches = file.iter_batches(batch_size=ROWS_AT_ONCE)
                for i, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
                    yield f"{path} row {i}", row
            except (OSError, ValueError, pa.ArrowException) as error:
                raise UserError(f"{path} cannot be read: {first_line(error)}") from None
        case ".jsonl":
            for i, line in enumerate(open_text(path), 1):
                if line.strip():
                    yield f"{path} line {i}", parse_json(line, f"{path} line {i}")
        case _:
            reader = csv.DictReader(open_text(path), **csv_dialect(path))
            try:
                refuse_repeated(f"{path} line 1", header := reader.fieldnames or (), filter(str.strip, header))
                if kind(path) == ".csv":
                    check_separated(path, header)
                for row in reader if kind(path) == ".csv" else watched(path, len(header), reader):
                    yield f"{path} line {reader.line_num}", row
            except csv.Error as error:
                raise csv_fault(path, reader.reader.line_num, error) from None
