"""Readers: the text of a .txt, .csv, .tsv, .jsonl or .parquet file as (row number, cell) pairs, in bounded memory."""

from __future__ import annotations

import csv
import gzip
import json
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from jdistill.core.errors import UserError, first_line, is_of_machine
from jdistill.core.printable import printable
from jdistill.core.progress import log, progress
from jdistill.data.text.columns import cells, pick_column, text_column
from jdistill.data.text.quoting import FIRST_ROWS, check_separated, tell_quoted
from jdistill.data.text.usable import MAX_CHARS, SURPLUS_CELLS, FlawedRow

TABLE_LINE_BYTES = 1 << 26  # a row of .csv or .jsonl may carry more than its text (an embedding, say)
BLOCK_BYTES = 1 << 20
TEXT_SUFFIXES = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
TABLE_SUFFIXES = TEXT_SUFFIXES[1:]

NumberedText = tuple[int, str | bytes | FlawedRow | None]  # number from 1; bytes to be decoded, None: too long to hold


def kind(path: Path) -> str:
    """The suffix that says how to read a file, without .gz: one of TEXT_SUFFIXES where it can be read. Of a packed .parquet, which cannot, .gz."""
    unpacked = Path(path.name.lower().removesuffix(".gz")).suffix
    return path.suffix.lower() if unpacked == ".parquet" else unpacked


def file_rows(path: Path, column: str, key: str) -> Iterator[NumberedText]:
    """The lines of a .txt, or the cells of a table's text column (column may be empty where one alone holds strings).

    Cells are not checked here, but in .jsonl they must be strings or null. key: the config key of the source, for
    messages. Raises UserError for a damaged file, a missing column, and a row that is not valid CSV or JSON.
    """
    match kind(path):
        case ".txt":
            return _txt_rows(path)
        case ".csv" | ".tsv":
            return _csv_rows(path, column, key)
        case ".jsonl":
            return _jsonl_rows(path, column, key)
    return _parquet_rows(path, column, key)


def _txt_rows(path: Path) -> Iterator[NumberedText]:
    for number, line in enumerate(_lines(path, 4 * MAX_CHARS), 1):
        if number == 1 and line and b"\r" in line:
            raise UserError(
                f"{path} line 1: a carriage return stands within it, by which lines of old files end, and all would be one text; "
                "write line feeds in their place"
            )
        yield number, line


def regular(path: Path) -> Path:
    """The path, if a file lies there that can be read. Raises UserError for a folder, a pipe or a device, which is never opened, and for
    one that is missing or not to be read."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        raise UserError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not stat.S_ISREG(mode):
        what = "folder" if stat.S_ISDIR(mode) else "pipe, a device or a socket"
        raise UserError(f"{path} is a {what}, where a file is needed")
    return path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """While a regular file is read: what the disk says, and bytes that are not UTF-8, become a UserError that names it."""
    regular(path)
    try:
        yield
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not {error.encoding.upper()} ({error})") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None


def damaged(path: Path, error: Exception, remedy: str = "fetch it again") -> Exception:
    """The error to raise of a file whose content cannot be read: itself, where the machine refused it. remedy: what to do."""
    if is_of_machine(error):
        return error
    return UserError(f"{path} cannot be read: {first_line(error)}. It is damaged or cut short; {remedy}")


def _lines(path: Path, limit: int) -> Iterator[bytes | None]:
    """The lines of a file, without their ends; None for one of more than `limit` bytes, which is never held whole."""
    rest, first = b"", True
    regular(path)
    try:
        with path.open("rb") as raw, progress(f"reading {path.name}", path.stat().st_size >> 10, "KB") as meter:
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if path.suffix.lower() == ".gz" else raw
            while block := file.read(BLOCK_BYTES):
                meter.advance((raw.tell() >> 10) - meter.done)
                if first:
                    if block.startswith((b"\xff\xfe", b"\xfe\xff")):  # which begin no UTF-8
                        raise UserError(f"{path} is UTF-16, as Excel's Unicode text is; save it as UTF-8")
                    block, first = block.removeprefix(b"\xef\xbb\xbf"), False
                *pieces, rest = (rest + block).split(b"\n")
                rest = rest[: limit + 1]  # enough to know that it is too long
                for piece in pieces:
                    yield piece.removesuffix(b"\r") if len(piece) <= limit else None
    except (EOFError, OSError, zlib.error) as error:
        raise damaged(path, error) from None
    if rest:
        yield rest.removesuffix(b"\r") if len(rest) <= limit else None


def open_text(path: Path, errors: str = "strict") -> Iterator[str]:
    """The lines of a file as text; errors: as bytes.decode takes it. Raises UserError for one that is not UTF-8 or is
    longer than TABLE_LINE_BYTES. In a .tsv, which has no quotes, a carriage return within a line is a space."""
    whole = kind(path) != ".tsv"
    for number, line in enumerate(_lines(path, TABLE_LINE_BYTES), 1):
        if line is None:
            raise UserError(f"{path} line {number}: longer than {TABLE_LINE_BYTES >> 20} MB")
        try:
            text = line.decode(errors=errors)
            yield (text if whole else text.replace("\r", " ")) + "\n"
        except UnicodeDecodeError as error:
            raise UserError(f"{path} line {number}: not valid UTF-8 ({error})") from None


def csv_dialect(path: Path) -> dict[str, Any]:
    """How csv is to read a .csv (commas, quotes) or a .tsv (tabs, no quoting); its limit on a cell is set to ours."""
    csv.field_size_limit(TABLE_LINE_BYTES)
    return {"strict": True} if kind(path) == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}


def csv_fault(path: Path, line: int, error: csv.Error) -> UserError:
    """The error for a line that is not valid CSV."""
    if "new-line character" in str(error):
        return UserError(
            f"{path} line {line}: not valid CSV: a carriage return stands in a cell without quotes; quote the cell, or remove it"
        )
    return UserError(f"{path} line {line}: not valid CSV ({error}); a quote may stand open since an earlier line")


def refuse_repeated(where: str, header: Sequence[str], names: Iterable[str]) -> None:
    """Raises UserError where several columns of a table have one of these names. where: its header is, for the message."""
    if name := next((name for name in names if header.count(name) > 1), None):
        raise UserError(f"{where}: {header.count(name)} columns are called {name!r}; give each a name of its own")


def _csv_rows(path: Path, column: str, key: str) -> Iterator[NumberedText]:
    # Bytes that are not UTF-8 pass as surrogates: csv works on strings, and only the text's own cell matters.
    reader = csv.reader(open_text(path, "surrogateescape"), **csv_dialect(path))
    quoted = kind(path) == ".csv"
    try:
        header, rows = next(reader, None), ((reader.line_num, row) for row in reader)
        if quoted:
            check_separated(path, header or ())
        ahead = list(islice(rows, FIRST_ROWS))
        if header is None or not ahead:
            return
        if not quoted:
            tell_quoted(path, len(header), (row for _, row in ahead))
        name = pick_column(column, _text_columns(header, ahead), header, str(path), key)
        refuse_repeated(f"{path} line 1", header, [name])
        if not column and " " in name.strip() and len(header) == 1:
            log.warning(
                "WARNING: %s is read by its first line, %r, as the name of its column: no text of it", path, name
            )
        place = header.index(name)
        for number, row in chain(ahead, rows):
            cell = row[place] if place < len(row) else ""
            text = cell if cell.isascii() else cell.encode("utf-8", "surrogateescape")
            yield number, text if len(row) <= len(header) else SURPLUS_CELLS
    except csv.Error as error:
        raise csv_fault(path, reader.line_num, error) from None


def _text_columns(header: list[str], ahead: list[tuple[int, list[str]]]) -> list[str]:
    """The columns that may hold text: those with a name (a table's index has none) whose cells are not all numbers, or all empty."""
    rows = [row for _, row in ahead if len(row) <= len(header)]
    cells_of = [[row[i] for row in rows if i < len(row) and row[i].strip()] for i in range(len(header))]
    return [name for name, of in zip(header, cells_of, strict=True) if name and not (of and all(map(is_number, of)))]


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _jsonl_rows(path: Path, column: str, key: str) -> Iterator[NumberedText]:
    name = ""
    for row, line in enumerate(_lines(path, TABLE_LINE_BYTES), 1):
        if line is None or not line.strip():
            yield row, line
            continue
        try:
            record = json.loads(line.decode())
        except UnicodeDecodeError:
            yield row, line
            continue
        except (ValueError, RecursionError) as error:
            raise json_fault(path, row, error) from None
        where = f"{path} line {row}"
        if not isinstance(record, dict):
            raise UserError(f'{where}: a row must be an object like {{"text": "…"}}, not {type(record).__name__}')
        if name and name not in record:
            has = printable(", ".join(record) or "none")
            raise UserError(
                f"{where}: there is no column {name!r}, which the rows before have; write null where a row has no text. Its columns: {has}"
            )
        if not name:
            strings = [field for field, value in record.items() if isinstance(value, str | None)]  # null: may be text
            name = pick_column(column, strings, list(record), where, key)
        if not isinstance(record[name], str | None):
            raise UserError(f"{where}: {name!r} holds {type(record[name]).__name__}, not text")
        yield row, record[name] or ""


def json_fault(path: Path, line: int, error: Exception) -> UserError:
    """The error for a line that is not valid JSON."""
    what = "nested too deep" if isinstance(error, RecursionError) else error
    return UserError(f"{path} line {line}: not valid JSON ({what})")


def _parquet_rows(path: Path, column: str, key: str) -> Iterator[NumberedText]:
    try:
        file = pq.ParquetFile(regular(path))
        name = text_column(column, file.schema_arrow, str(path), key)
        refuse_repeated(str(path), file.schema_arrow.names, [name])
        with progress(f"reading {path.name}", file.metadata.num_rows, "rows") as meter:
            for number, cell in cells(batch.column(0) for batch in file.iter_batches(10_000, columns=[name])):
                if number % 10_000 == 0:
                    meter.advance(10_000)
                yield number, cell
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of a column's name
        raise damaged(path, error) from None
