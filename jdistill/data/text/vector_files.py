"""The files of a folder of vectors: found, opened, held against each other, and read in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.sorted_keys import keys_of_texts
from jdistill.data.text.locations import files_of
from jdistill.data.text.readers import damaged, regular
from jdistill.data.text.usable import flaw_of
from jdistill.data.text.vector_folder import EmbedSettings
from jdistill.data.text.vector_parts import GROUP_ROWS, about_part, part_name
from jdistill.data.text.vectors import decoded_texts, list_matrix, vector_column

STORED_KEY = np.dtype("S16")  # which sorts, as V16 does not; all are as long, so that trailing zeros do no harm
FAULTS = (pa.ArrowException, OSError, UnicodeDecodeError)  # of a damaged file; the last of a column's name


@dataclass(frozen=True)
class StoredFile:
    """One file of a store. start: the number of its first row. groups: int64, the first row of each row group, from the file's own first."""

    path: Path
    start: int
    groups: np.ndarray
    rows: int
    vector: str  # its column's name
    with_text: bool
    width: int  # of its vectors where their type says it, else 0


def stored_files(folder: Path, seal: dict[str, Any] | None, key: str) -> list[StoredFile]:
    """The files of a folder that have rows, in the order of their names.

    Args:
      folder: of jdistill.embed, or of Parquet files of another.
      seal: of the former; None: it has none.
      key: what names the folder, for messages.

    Raises: UserError for a folder that is not finished, a part made in another way, and a file that is damaged or has other columns.
    """
    paths = _sealed_paths(folder, seal) if seal else _other_paths(folder, key)
    made_by = EmbedSettings(**seal["settings"]).made_by if seal else ""
    stored: list[StoredFile] = []
    start = 0
    for path in paths:
        stored.append(_open_file(path, start, made_by))
        start += stored[-1].rows
    if not start:
        raise UserError(f"{folder} has no rows")
    return [file for file in stored if file.rows]


def _open_file(path: Path, start: int, made_by: str) -> StoredFile:
    try:
        with pq.ParquetFile(regular(path), memory_map=True) as file:
            schema, footer = file.schema_arrow, file.metadata
            counts = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
            if made_by and about_part(path, schema).get("made_by") != made_by:
                raise UserError(f"{path} was made in another way than its folder says; run its command again")
    except FAULTS as error:
        raise damaged(path, error, "make it again") from None
    keyed = "text" not in schema.names and "key" in schema.names and schema.field("key").type == pa.binary(16)
    vector = "vector" if keyed and "vector" in schema.names else vector_column(path, schema)
    groups = np.cumsum([0, *counts], dtype=np.int64)
    kind = schema.field(vector).type
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
    return StoredFile(path, start, groups[:-1], int(groups[-1]), vector, not keyed, width)


def _sealed_paths(folder: Path, seal: dict[str, Any]) -> list[Path]:
    again = "run its python -m jdistill.embed command again, without --shard, which makes what lacks"
    if not seal.get("parts"):
        raise UserError(f"{folder} is not finished: {again}")
    paths = [folder / part_name(number) for number in range(seal["parts"])]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise UserError(f"{folder} lacks {files.some_of(missing)}: {again}")
    return paths


def _other_paths(folder: Path, key: str) -> list[Path]:
    if (folder / files.SEAL).exists():
        raise UserError(
            f"{folder / files.SEAL} is damaged, or of no folder of vectors; if jdistill.embed made it, run it again"
        )
    return files_of(folder, (".parquet",), key)


def common_width(stored: Sequence[StoredFile], seal: dict[str, Any] | None) -> int:
    """The width of the vectors, which is that of the files' first vectors. Raises UserError naming two files whose widths differ."""
    widths: dict[int, Path] = {}
    for file in stored:
        width = file.width
        if not width:
            group = int(np.searchsorted(file.groups, 0, side="right")) - 1  # the first that has rows
            batch = next(read_batches(file.path, [file.vector], [group]))
            width = list_matrix(file.path, file.vector, batch.column(0).slice(0, 1), 0, 0).shape[1]
        widths.setdefault(width, file.path)
    if len(widths) > 1:
        (one_width, first), (other_width, second), *_ = widths.items()
        raise UserError(
            f"the vectors of {first} have {one_width} numbers, those of {second} have {other_width}; "
            "leave the files of one model in the folder"
        )
    width = next(iter(widths), 0)
    if seal and width and width != seal["settings"]["width"]:
        raise UserError(f"the vectors of {stored[0].path} have {width} numbers, not {seal['settings']['width']}")
    return width


def keys_of(file: StoredFile) -> np.ndarray:
    """The keys of a file's texts, [n] of 16 bytes. Raises UserError for a text that cannot be used."""
    if not file.with_text:
        pieces = [batch.column(0).to_pylist() for batch in read_batches(file.path, ["key"])]
        return np.array([key for piece in pieces for key in piece], STORED_KEY)
    keys, start = [], 0
    for batch in read_batches(file.path, ["text"]):
        texts = [text.strip() for text in decoded_texts(file.path, batch.column(0), start)]
        for row, text in enumerate(texts, start):
            if flaw := flaw_of(text):
                raise UserError(f"{file.path} row {row}: the text is {flaw}; remove it")
        keys.append(np.array(keys_of_texts(texts).tolist(), STORED_KEY))
        start += len(texts)
    return np.concatenate(keys)


def read_batches(path: Path, columns: list[str], groups: list[int] | None = None) -> Iterator[pa.RecordBatch]:
    """These columns of a file, GROUP_ROWS rows at a time, of some row groups or of all. Raises UserError for a damaged file."""
    try:
        with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
            yield from file.iter_batches(GROUP_ROWS, columns=columns, row_groups=groups)
    except FAULTS as error:
        raise damaged(path, error, "make it again") from None
