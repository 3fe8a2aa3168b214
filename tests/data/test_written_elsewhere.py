"""Tables as other programs write them: another encoding, other separators, quotes in a .tsv; and files that may not be read."""

from __future__ import annotations

import builtins
import errno
import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.text import readers
from jdistill.data.text.records import records_of


def texts(path: Path) -> list:
    return list(readers.file_rows(path, "query" if path.suffix != ".txt" else "", "text"))


def records(path: Path) -> list:
    return list(records_of(str(path), "pairs"))


@pytest.mark.parametrize("read", [texts, records])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_told_by_its_name(read: Callable, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    mark = "" if encoding == "utf-16" else "\ufeff"
    path.write_bytes(f"{mark}query,doc\r\nä,b c\r\n".encode(encoding))
    with pytest.raises(UserError, match=r"excel\.csv is UTF-16.*save it as UTF-8"):
        read(path)


@pytest.mark.parametrize("read", [texts, records])
def test_semicolons_are_told_before_a_quoted_cell_is_met(read: Callable, tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_text('query;doc\r\n"a;b";c\r\n')
    with pytest.raises(UserError, match="line 1: no comma, but tabs or semicolons"):
        read(path)


QUOTED = {
    "its own quotes doubled": 'query\tdoc\n"how do I ""reset"" it"\ta\n',
    "a line feed within a cell": 'query\tdoc\n"two\nlines here"\tb\n',
}
AS_THEY_STAND = {
    "a quotation": 'query\tdoc\n"Yes," he said\ta\n',
    "a whole quotation": 'query\tdoc\n"Yes"\ta\n',
    "an open one": 'query\tdoc\n"Yes, he said\ta\nplain\t"no\n',
    "a short row": "query\tdoc\nplain\n",
}


@pytest.mark.parametrize("read", [texts, records])
@pytest.mark.parametrize("name", [*QUOTED, *AS_THEY_STAND])
def test_a_tsv_whose_cells_look_quoted_is_read_as_it_stands_with_a_warning(
    read: Callable, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pandas.tsv"
    path.write_text((QUOTED | AS_THEY_STAND)[name])
    with caplog.at_level(logging.WARNING, logger=log.name):
        assert '"' in str(read(path)) or name == "a short row"
    assert caplog.text.count("its cells look quoted") == (name in QUOTED)


def test_a_column_whose_name_has_a_space_at_its_edge_is_shown_with_it(tmp_path: Path) -> None:
    path = tmp_path / "spaced.csv"
    path.write_text("id, query,doc\n1, hello,c\n")
    with pytest.raises(UserError, match=r"no column 'query'; set --text_column to one of: ' query', doc$"):
        texts(path)


def test_a_file_that_may_not_be_read_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("secret.txt", "secret.csv"):
        (tmp_path / name).write_text("query\nhello\n")
    pq.write_table(pa.table({"query": ["hello"]}), tmp_path / "secret.parquet")

    def refused(path: object, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refused)
    monkeypatch.setattr(builtins, "open", refused)
    monkeypatch.setattr(pq, "ParquetFile", refused)
    for name in ("secret.txt", "secret.csv", "secret.parquet"):
        with pytest.raises(PermissionError) as raised:
            texts(tmp_path / name)
        assert raised.value.filename.endswith(name)  # of which a command's last line says what to do


def test_a_long_cell_of_quotes_is_looked_at_once(tmp_path: Path) -> None:
    """In a time that grows as the cell: some 20 MB of doubled quotes, which never close."""
    path = tmp_path / "json.tsv"
    path.write_text('query\tdoc\n"' + 'a""' * 7_000_000 + "x\tb\n")
    assert len(texts(path)) == 1
