"""Retrieval collections in BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv; read, checked, written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import parse_json
from jdistill.data.sets.collection import (
    Collection,
    TableNames,
    by_id,
    graded,
    joined,
    text_of,
    title_and_text,
)
from jdistill.data.text.locations import local_path
from jdistill.data.text.readers import reading

BEIR_FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


def collections(folder: Path) -> list[Path]:
    """The collection folders, by name: those in `folder` that hold corpus.jsonl, or `folder` itself where it does."""
    folders = _with_documents(folder)
    for path in folders:
        missing = [name for name in BEIR_FILES if not (path / name).is_file()]
        if missing:
            raise UserError(f"the collection {path} lacks {', '.join(missing)}")
    return folders


def _with_documents(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; it should hold folders with {', '.join(BEIR_FILES)}")
    inside = sorted(path for path in folder.iterdir() if (path / BEIR_FILES[0]).is_file())
    folders = [folder.resolve()] if (folder / BEIR_FILES[0]).is_file() else inside
    if not folders:
        raise UserError(f"no collection in {folder}: none of its folders holds {BEIR_FILES[0]}")
    return folders


def numbered_documents(rest: str, column: str, key: str) -> Iterator[tuple[int, str]]:
    """The documents of every collection in a folder, title and text, as an index has them, with their numbers, from 1; as Reader
    (data.text.schemes). Neither queries nor judgements need be there. Raises UserError naming file and line of what is malformed."""
    if not rest:
        raise UserError(f"--{key}=beir: name the collection's folder, beir:FOLDER")
    path, number = local_path(rest, key), count(1)
    if path is None or not path.is_dir():
        raise UserError(f"--{key}=beir:{rest}: there is no such folder; it holds {BEIR_FILES[0]}, or folders with one")
    for folder in _with_documents(path):
        for place, row in _rows(folder / BEIR_FILES[0], needed=("text",)):
            yield next(number), title_and_text(place, row)


def beir_queries(folder: Path) -> Iterator[str]:
    """The text of every query of every collection in a folder, those without judgements too. Raises UserError, as read_collection will, for
    what is malformed in queries and judgements, and where none of the queries is judged."""
    for path in collections(folder):
        queries = _read_queries(path / BEIR_FILES[1])
        if not queries.keys() & _read_judgements(path / BEIR_FILES[2]).keys():
            raise UserError(f"{path}: no query of {BEIR_FILES[1]} is judged in {BEIR_FILES[2]}, by its _id")
        yield from queries.values()


def read_collection(folder: Path) -> Collection:
    """Reads a collection. Queries without a relevant document, judged queries and relevant documents that are not there,
    and repeated ids (the first is kept) are counted in the log.

    Raises UserError naming file and line of what is malformed, and where no query has a relevant document.
    """
    documents = _read_documents(folder / BEIR_FILES[0])
    queries = _read_queries(folder / BEIR_FILES[1])
    judgements = _read_judgements(folder / BEIR_FILES[2])
    return joined(folder.name, documents, queries, judgements, TableNames(str(folder), *BEIR_FILES))


def write_collection(
    folder: Path, documents: Mapping[str, str], queries: Mapping[str, str], relevant: Mapping[str, Mapping[str, int]]
) -> None:
    """Writes texts by id and judgements as a collection that read_collection and BEIR's own tools read."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in ((BEIR_FILES[0], documents), (BEIR_FILES[1], queries)):
        with (folder / name).open("w") as out:
            out.writelines(json.dumps({"_id": i, "title": "", "text": text}) + "\n" for i, text in texts.items())
    rows = [f"{query}\t{document}\t{grade}\n" for query, of in relevant.items() for document, grade in of.items()]
    (folder / BEIR_FILES[2]).write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))


def _read_documents(path: Path) -> dict[str, str]:
    rows = ((place, row["_id"], title_and_text(place, row)) for place, row in _rows(path, needed=("_id", "text")))
    return by_id(str(path), "documents", rows)


def _read_queries(path: Path) -> dict[str, str]:
    rows = ((place, row["_id"], text_of(place, row, "text")) for place, row in _rows(path, needed=("_id", "text")))
    return by_id(str(path), "queries", rows)


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of each line."""
    with reading(path), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            row = parse_json(line, f"{path}, line {number}")
            missing = [key for key in needed if not isinstance(row, dict) or key not in row]
            if missing:
                raise UserError(f"{path}, line {number}: {', '.join(missing)} missing")
            yield f"{path}, line {number}", row


def _read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade, from lines query-id, corpus-id, score, with or without that header."""
    return graded(str(path), _judgement_rows(path))


def _judgement_rows(path: Path) -> Iterator[tuple[str, str, str, int]]:
    """(place, query id, document id, grade) of each line."""
    with reading(path), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n").split("\t")
            if not any(cells) or (number == 1 and cells[-1] == "score"):
                continue
            try:
                query, document, grade = cells
                row = f"{path}, line {number}", query, document, int(grade)
            except ValueError:
                raise UserError(
                    f"{path}, line {number}: query-id, corpus-id and a whole number, with tabs between, "
                    f"are needed; found is {cells[:5]}"
                ) from None
            yield row
