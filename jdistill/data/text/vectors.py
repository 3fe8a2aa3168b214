"""vectors:FILE, texts with their embeddings, so that any model or API can teach: read and checked row by row.

A folder of such files is read by vector_store, in bounded memory.
"""

from __future__ import annotations

import lzma
import math
import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jdistill.core.errors import UserError, first_line
from jdistill.core.printable import printable
from jdistill.core.progress import log
from jdistill.data.text.columns import cells, string_columns
from jdistill.data.text.readers import damaged, regular
from jdistill.data.text.usable import flaw_of

READ_FAULTS = (ValueError, OSError, EOFError, KeyError, TypeError, SyntaxError, RuntimeError, NotImplementedError)
SAME = 1e-3  # relative difference up to which two vectors of a text are the same: APIs do not repeat every last bit


def read_vectors(path: str | Path) -> tuple[list[str], np.ndarray]:
    """Distinct texts and their vectors, float32 [N, D], in the file's order.

    path: .parquet with columns `text` and `embedding` or `vector` (lists of numbers), or .npz with arrays `texts` [N]
    (str) and `embeddings` [N, D]; nothing is ever unpickled. Texts are stripped; a repeated one with the same vector
    counts once. Raises UserError, with the row (from 0), for a text that is missing or broken, a vector that is
    missing, all zeros, NaN, inf or of another width, and two different vectors of one text.
    """
    path = Path(path).expanduser()
    if not os.path.lexists(path):
        raise UserError(f"vectors:{path}: there is no such file")
    regular(path)
    readers = {".parquet": _read_parquet, ".npz": _read_npz}
    if path.suffix.lower() not in readers:
        raise UserError(f"vectors:{path}: the file must be .parquet or .npz")
    texts, vectors = readers[path.suffix.lower()](path)
    return _checked(path, texts, vectors)


def _checked(path: Path, texts: list[str], vectors: np.ndarray) -> tuple[list[str], np.ndarray]:
    if not texts:
        raise UserError(f"{path} has no rows")
    if len(texts) != len(vectors):
        raise UserError(f"{path} has {len(texts)} texts but {len(vectors)} vectors")
    if not vectors.shape[1]:
        raise UserError(f"{path} row 0: the vector is empty")
    with np.errstate(over="ignore"):
        vectors = np.ascontiguousarray(vectors, np.float32)  # float64 beyond float32 becomes inf, found below
    check_vector_rows(path, vectors, 0, texts)
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        text = text.strip()
        if flaw := flaw_of(text):
            raise UserError(f"{path} row {row}: the text is {flaw}; remove it")
        other = first.setdefault(text, row)
        if other != row and np.linalg.norm(vectors[row] - vectors[other]) > SAME * np.linalg.norm(vectors[other]):
            raise UserError(f"{path} row {row}: the text of row {other} again, with another vector: {text[:80]!r}")
    if len(first) < len(texts):
        log.info("%s: %d repeated texts counted once", path, len(texts) - len(first))
        vectors = vectors[list(first.values())]
    return list(first), vectors


def check_vector_rows(path: Path, vectors: np.ndarray, start: int, texts: Sequence[str] = ()) -> None:
    """Raises UserError for vectors [N, D] of which one is not finite or all zeros. start: the row of the first; texts: theirs, if known."""
    for fault, rows in (("holds NaN or inf", ~np.isfinite(vectors).all(1)), ("is all zeros", ~vectors.any(1))):
        if rows.any():
            row = int(np.argmax(rows))
            text = f". Text: {texts[row][:80]!r}" if texts else ""
            raise UserError(
                f"{path} row {start + row}: the vector {fault} ({int(rows.sum())} rows do); remove or mend it{text}"
            )


def _read_npz(path: Path) -> tuple[list[str], np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            missing = {"texts", "embeddings"} - set(arrays.files)
            if missing:
                raise UserError(
                    f"{path} has no array {' or '.join(sorted(missing))}; it has {printable(', '.join(arrays.files)) or 'none'}"
                )
            texts, vectors = (_array(arrays.zip, name) for name in ("texts", "embeddings"))
    except (*READ_FAULTS, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise UserError(
            f"{path} cannot be read: {first_line(error)}. Save it with "
            "np.savez(file, texts=np.array(texts, dtype=str), embeddings=float32 array)"
        ) from None
    if texts.dtype.kind != "U" or texts.ndim != 1:
        raise UserError(f"{path}: texts must be a one-dimensional array of str, not {texts.dtype} {list(texts.shape)}")
    if vectors.dtype.kind not in "fiu" or vectors.ndim != 2:
        raise UserError(f"{path}: embeddings must be numbers [N, D], not {vectors.dtype} {list(vectors.shape)}")
    return texts.tolist(), vectors


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array of an .npz, held to what its entry can hold before there is memory made for it; nothing is unpickled."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read_header.get(version, np.lib.format.read_array_header_2_0)(file)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize > entry.file_size:
            raise ValueError(f"{name} tells of {list(shape)} entries of {dtype}, more than it holds")
    with archive.open(entry) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _read_parquet(path: Path) -> tuple[list[str], np.ndarray]:
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        name = vector_column(path, schema)
        texts: list[str] = []
        parts: list[np.ndarray] = []
        width = 0
        for batch in file.iter_batches(10_000, columns=["text", name]):
            start = len(texts)
            texts += decoded_texts(path, batch.column("text"), start)
            part = list_matrix(path, name, batch.column(name), start, width)
            width = part.shape[1]
            parts.append(part)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of a column's name
        raise damaged(path, error, "write it again") from None
    return texts, np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def vector_column(path: Path, schema: pa.Schema) -> str:
    """The name of the column of vectors. Raises UserError where it or the column of texts is missing, or the latter holds no strings."""
    name = next((name for name in ("embedding", "vector") if name in schema.names), None)
    if name is None or "text" not in schema.names:
        raise UserError(
            f"{path} must have columns text and embedding (or vector); it has {printable(', '.join(schema.names))}"
        )
    if "text" not in string_columns(schema):
        raise UserError(f"{path}: column text holds {schema.field('text').type}, not strings")
    return name


def decoded_texts(path: Path, column: pa.Array, start: int) -> list[str]:
    """The texts of a string column, null as empty. start: the row of the first, for the UserError of one that is not valid UTF-8."""
    texts = []
    for row, cell in cells([column]):
        try:
            texts.append((cell or b"").decode())
        except UnicodeDecodeError:
            raise UserError(f"{path} row {start + row - 1}: the text is not valid UTF-8; remove it") from None
    return texts


def list_matrix(path: Path, name: str, column: pa.Array, start: int, width: int) -> np.ndarray:
    """A list column as float32 [rows, D], D being `width` (0: that of its first row). Raises UserError that names the row, from `start`."""
    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise UserError(f"{path}: column {name} holds {kind}, not lists of numbers")
    if column.null_count:
        raise UserError(f"{path} row {start + _first_null(column)}: there is no vector")
    fixed = pa.types.is_fixed_size_list(kind)
    lengths = np.full(len(column), kind.list_size) if fixed else column.value_lengths().to_numpy()
    width = width or int(lengths[0])
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        raise UserError(f"{path} row {start + row}: the vector has {lengths[row]} numbers, those before have {width}")
    flat = column.flatten()
    if flat.null_count:
        raise UserError(f"{path} row {start + _first_null(flat) // width}: the vector holds a null")
    with np.errstate(over="ignore"):  # float64 beyond float32 becomes inf: found by _checked
        return flat.to_numpy(zero_copy_only=False).reshape(len(column), width).astype(np.float32)


def _first_null(array: pa.Array) -> int:
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
