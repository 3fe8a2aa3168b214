"""Which column of a table holds the text, and the cells of one of strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from jdistill.core.errors import UserError
from jdistill.core.printable import printable

# A source's flag -> its column's. A flag that has the word in it is a column's own; of others a source has one column of text.
COLUMN_FLAGS = {
    "config.text": "config.text_column",
    "text": "text_column",
    "corpus": "column",
}


def pick_column(column: str, strings: list[str], present: list[str], where: str, key: str) -> str:
    """The column to read: the one named, or the only one of strings. Raises UserError naming the columns there are."""
    if (column and column in present) or (not column and len(strings) == 1):
        return column or strings[0]
    fault = f"there is no column {column!r}" if column else f"{len(strings)} columns hold text"
    remedy = "each row needs it, and this one has" if key.endswith(".pairs") else choose_column(key)
    names = [name if name == name.strip() else repr(name) for name in strings or present]
    raise UserError(printable(f"{where}: {fault}; {remedy}: {', '.join(names)}"))


def text_column(column: str, schema: pa.Schema, where: str, key: str) -> str:
    """The column to read of a table, as pick_column finds it. Raises UserError for one that holds no text too."""
    strings = string_columns(schema)
    name = pick_column(column, strings, schema.names, where, key)
    if name not in strings:
        raise UserError(
            f"{where}: column {name!r} holds {schema.field(name).type}, not text; "
            f"{choose_column(key)}: {', '.join(strings) or 'none that holds text'}"
        )
    return name


def choose_column(key: str) -> str:
    """How a user names the column of a source: by the flag that goes with the one that names the source, if there is one."""
    flag = key if "column" in key else COLUMN_FLAGS.get(key)
    return f"set --{flag} to one of" if flag else f"--{key} takes a file with one column of text, and here are"


def string_columns(schema: pa.Schema) -> list[str]:
    """The columns of an Arrow schema that hold strings."""
    return [field.name for field in schema if _is_string(field.type)]


def cells(columns: Iterable[pa.ChunkedArray | pa.Array]) -> Iterator[tuple[int, bytes | None]]:
    """The cells of a string column in batches, as bytes: Arrow does not promise valid UTF-8. Null is empty."""
    row = 0
    for cut in columns:
        if pa.types.is_dictionary(cut.type):
            cut = cut.cast(cut.type.value_type)
        for cell in cut.cast(pa.large_string()).cast(pa.large_binary()).to_pylist():
            row += 1
            yield row, cell or b""


def _is_string(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)
