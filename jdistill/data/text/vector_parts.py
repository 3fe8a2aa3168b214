"""A part of a folder of vectors: a Parquet file of texts, or their keys, with vectors, which tells itself whole from damaged.

Columns: `id` (string) where the texts have ids, `text` (string) or `key` (16 bytes, a hash of the text), and `vector`
(fixed_size_list<float32>). Pages carry checksums; the footer says by what the part was made, and of which texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jdistill.core.digest import digest
from jdistill.core.errors import UserError, first_line, is_of_machine
from jdistill.core.files import writing_beside
from jdistill.core.sorted_keys import keys_of_texts
from jdistill.data.text.text_stream import StreamedText

PART_TEXTS = 50_000
PART_CHARS = 1 << 28  # a part of long texts ends here: it is held in memory while it is encoded
GROUP_ROWS = 2048  # of a row group, which is encoded, and later read, at once
ABOUT_KEY = b"jdistill"  # in the footer


@dataclass(frozen=True)
class PartTexts:
    """What one part is made of. number: from 0, in the order of the texts. ids: of the texts; empty where they have none."""

    number: int
    texts: list[str]
    ids: list[str]

    @property
    def name(self) -> str:
        """Of its file."""
        return part_name(self.number)

    @property
    def texts_digest(self) -> str:
        """A hash of texts and ids, 32 hexadecimal digits."""
        return digest(self.texts, self.ids)


def part_name(number: int) -> str:
    """The name of a part's file."""
    return f"part-{number:05d}.parquet"


def split_parts(stream: Iterable[StreamedText], size: int = PART_TEXTS) -> Iterator[PartTexts]:
    """The stream in parts of `size` texts, fewer where they are long (PART_CHARS), the last with what is left."""
    texts: list[str] = []
    ids: list[str] = []
    number = chars = 0
    for text, name in stream:
        texts.append(text)
        if name:
            ids.append(name)
        chars += len(text)
        if len(texts) == size or chars >= PART_CHARS:
            yield PartTexts(number, texts, ids)
            texts, ids, number, chars = [], [], number + 1, 0
    if texts:
        yield PartTexts(number, texts, ids)


def part_schema(width: int, with_text: bool, with_ids: bool) -> pa.Schema:
    """The columns of a part."""
    text = pa.field("text", pa.string()) if with_text else pa.field("key", pa.binary(16))
    vector = pa.field("vector", pa.list_(pa.field("element", pa.float32(), nullable=False), width))
    return pa.schema([*([pa.field("id", pa.string())] if with_ids else []), text, vector])


def write_part(
    folder: Path, part: PartTexts, vectors: Iterable[np.ndarray], width: int, with_text: bool, made_by: str
) -> None:
    """Writes a part beside its place and renames it.

    Args:
      vectors: of its texts in their order, float32 [GROUP_ROWS, width] at a time, the last with what is left.
      made_by: a fingerprint of all that decides the vectors.
    """
    schema = part_schema(width, with_text, bool(part.ids))
    about = {"made_by": made_by, "texts": part.texts_digest, "rows": len(part.texts)}
    path = folder / part.name
    with (
        writing_beside(path) as beside,
        open(beside, "wb") as file,
        pq.ParquetWriter(
            file,
            schema.with_metadata({ABOUT_KEY: json.dumps(about)}),
            compression={name: "none" if name == "vector" else "zstd" for name in schema.names},
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        ) as writer,
    ):
        start = 0
        for piece in vectors:
            stop = start + len(piece)
            writer.write_table(_table(part, start, stop, piece, schema), row_group_size=GROUP_ROWS)
            start = stop


def _table(part: PartTexts, start: int, stop: int, vectors: np.ndarray, schema: pa.Schema) -> pa.Table:
    texts = part.texts[start:stop]
    columns: dict[str, Any] = {"text": texts, "key": keys_of_texts(texts).tolist() if "key" in schema.names else None}
    columns["id"] = part.ids[start:stop]
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, type=schema.field("vector").type)
    return pa.table(
        [pa.array(columns[f.name], f.type) if f.name != "vector" else columns["vector"] for f in schema], schema
    )


def part_fault(folder: Path, part: PartTexts, width: int, with_text: bool, made_by: str) -> str | None:
    """What keeps the file of a part from being used: None where it is whole, "" where there is none, else what is damaged.

    All of it is read. Raises UserError for a file that we did not write, or wrote by another model or of other texts.
    """
    path = folder / part.name
    if not path.exists():
        return ""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _refuse_others(path, part, file, made_by)
            if not file.schema_arrow.equals(part_schema(width, with_text, bool(part.ids))):
                return "its columns have changed"
            rows = 0
            for batch in file.iter_batches(GROUP_ROWS):
                wanted = part.texts[rows : rows + len(batch)]
                if _texts_of(batch) != (wanted if with_text else keys_of_texts(wanted).tolist()):
                    return f"its texts from row {rows} have changed"
                rows += len(batch)
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None):  # the disk's own, not of what the file holds
            raise
        return first_line(error)
    return None if rows == len(part.texts) else f"it holds {rows} of {len(part.texts)} rows"


def check_footer(folder: Path, part: PartTexts, made_by: str) -> None:
    """Raises UserError as part_fault, by the footer of a part's file alone; one that is not there, or cannot be read, passes."""
    path = folder / part.name
    if not path.exists():
        return
    try:
        with pq.ParquetFile(path) as file:
            _refuse_others(path, part, file, made_by)
    except (pa.ArrowException, OSError, ValueError) as error:
        if is_of_machine(error):
            raise


def _refuse_others(path: Path, part: PartTexts, file: pq.ParquetFile, made_by: str) -> None:
    about = about_part(path, file.schema_arrow)
    if about.get("made_by") != made_by:
        raise UserError(f"{path} was made by another model, or in another way; choose another folder")
    if about.get("texts") != part.texts_digest:
        _refuse_other_texts(path, part, file)


def about_part(path: Path, schema: pa.Schema) -> dict[str, Any]:
    """What a part's footer says of its making. Raises UserError for a Parquet file that is none of ours."""
    about = json.loads((schema.metadata or {}).get(ABOUT_KEY, b"null"))
    if not isinstance(about, dict):
        raise UserError(f"{path} was not written by jdistill.embed; move it, or choose another folder")
    return about


def _texts_of(batch: pa.RecordBatch) -> list[Any]:
    return batch.column("text" if "text" in batch.schema.names else "key").to_pylist()


def _refuse_other_texts(path: Path, part: PartTexts, file: pq.ParquetFile) -> NoReturn:
    """Raises UserError with the first text that differs."""
    row = 0
    for batch in file.iter_batches(GROUP_ROWS):
        here = part.texts[row : row + len(batch)]
        wanted: list[Any] = here if "text" in batch.schema.names else keys_of_texts(here).tolist()
        for there, now in zip(_texts_of(batch), wanted, strict=False):
            if there != now:
                was = f"was {there[:40]!r}" if isinstance(there, str) else "was another"
                raise UserError(
                    f"{path} was made of other texts: row {row} {was}, and is now {part.texts[row][:40]!r}; "
                    "choose another folder for this text"
                )
            row += 1
    what = f"it has {row} texts, and now there are {len(part.texts)}" if row != len(part.texts) else "their ids differ"
    raise UserError(f"{path} was made of other texts: {what}; choose another folder for this text")
