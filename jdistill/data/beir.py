"""Retrieval collections in BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv; read, checked, written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jdistill.errors import UserError
from jdistill.progress import log

FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")


@dataclass(frozen=True)
class Collection:
    """documents: id -> title, a space, text. queries: id -> text, those with a relevant document. relevant: query id ->
    document id -> grade."""

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]]


def collections(folder: Path) -> list[Path]:
    """The collection folders, by name: those in `folder` that hold corpus.jsonl, or `folder` itself where it does."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; it should hold folders with {', '.join(FILES)}")
    inside = sorted(path for path in folder.iterdir() if (path / FILES[0]).is_file())
    found = [folder.resolve()] if (folder / FILES[0]).is_file() else inside
    if not found:
        raise UserError(f"no collection in {folder}: none of its folders holds {FILES[0]}")
    for path in found:
        missing = [name for name in FILES if not (path / name).is_file()]
        if missing:
            raise UserError(f"the collection {path} lacks {', '.join(missing)}")
    return found


def beir_queries(folder: Path) -> Iterator[str]:
    """The text of every query of every collection in a folder, those without judgements too."""
    for path in collections(folder):
        yield from _read_queries(path / FILES[1]).values()


def read_collection(folder: Path) -> Collection:
    """Reads a collection. Queries without a relevant document, judged queries and relevant documents that are not there,
    and repeated ids (the first is kept) are counted in the log.

    Raises UserError naming file and line of what is malformed, and where no query has a relevant document.
    """
    documents = _read_documents(folder / FILES[0])
    queries = _read_queries(folder / FILES[1])
    judged = _read_judgements(folder / FILES[2])
    relevant = {query: judged[query] for query in queries if max(judged.get(query, {}).values(), default=0) > 0}
    if not relevant:
        raise UserError(f"{folder}: no query of {FILES[1]} has a relevant document in {FILES[2]}; do their ids match?")
    _report(folder, documents, queries, judged, relevant)
    return Collection(folder.name, documents, {query: queries[query] for query in relevant}, relevant)


def write_collection(
    folder: Path, documents: Mapping[str, str], queries: Mapping[str, str], relevant: Mapping[str, Mapping[str, int]]
) -> None:
    """Writes texts by id and judgements as a collection that read_collection and BEIR's own tools read."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in ((FILES[0], documents), (FILES[1], queries)):
        with (folder / name).open("w") as out:
            out.writelines(json.dumps({"_id": i, "title": "", "text": text}) + "\n" for i, text in texts.items())
    rows = [f"{query}\t{document}\t{grade}\n" for query, of in relevant.items() for document, grade in of.items()]
    (folder / FILES[2]).write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))


def _report(
    folder: Path,
    documents: dict[str, str],
    queries: dict[str, str],
    judged: dict[str, dict[str, int]],
    relevant: dict[str, dict[str, int]],
) -> None:
    log.info("%s: %d documents, %d queries", folder.name, len(documents), len(relevant))
    lost = {name for grades in relevant.values() for name, grade in grades.items() if grade > 0} - documents.keys()
    for count, what in (
        (len(queries) - len(relevant), "queries have no relevant document and are left out"),
        (len(judged.keys() - queries.keys()), f"judged queries are not in {FILES[1]} and are left out"),
        (len(lost), f"relevant documents are not in {FILES[0]} and count as not found"),
    ):
        if count:
            log.warning("%s: %d %s", folder.name, count, what)


def _read_documents(path: Path) -> dict[str, str]:
    rows = (
        (line, row, f"{_text(path, line, row, 'title')} {_text(path, line, row, 'text')}".strip())
        for line, row in _rows(path, needed=("_id", "text"))
    )
    return _by_id(path, "documents", rows)


def _read_queries(path: Path) -> dict[str, str]:
    rows = ((line, row, _text(path, line, row, "text")) for line, row in _rows(path, needed=("_id", "text")))
    return _by_id(path, "queries", rows)


def _by_id(path: Path, what: str, rows: Iterator[tuple[int, dict[str, Any], str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    repeated = 0
    for line, row, text in rows:
        if not isinstance(row["_id"], str | int):
            raise UserError(f"{path}, line {line}: _id is {row['_id']!r}; a string is needed")
        repeated += str(row["_id"]) in found
        found.setdefault(str(row["_id"]), text)
    if not found:
        raise UserError(f"{path} holds no {what}")
    if repeated:
        log.warning("%s: %d %s repeat an id; the first of each is kept", path, repeated, what)
    return found


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:  # UnicodeDecodeError is one too
                raise UserError(f"{path}, line {number}: not valid JSON ({error})") from None
            missing = [key for key in needed if not isinstance(row, dict) or key not in row]
            if missing:
                raise UserError(f"{path}, line {number}: {', '.join(missing)} missing")
            yield number, row


def _text(path: Path, line: int, row: dict[str, Any], key: str) -> str:
    text = row.get(key) or ""
    if not isinstance(text, str):
        raise UserError(f"{path}, line {line}: {key} is {type(text).__name__}, not a string")
    return text


def _read_judgements(path: Path) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade, from lines query-id, corpus-id, score, with or without that header."""
    found: dict[str, dict[str, int]] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.decode("utf-8", "replace").rstrip("\r\n").split("\t")
            if not any(cells) or (number == 1 and cells[-1] == "score"):
                continue
            try:
                query, document, grade = cells
                found.setdefault(query, {})[document] = int(grade)
            except ValueError:
                raise UserError(
                    f"{path}, line {number}: query-id, corpus-id and a whole number, with tabs between, "
                    f"are needed; found is {cells[:5]}"
                ) from None
    return found
