"""Retrieval on collections in BEIR layout: exact cosine search over all documents, measured by trec_eval's code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytrec_eval

from jdistill import index
from jdistill.encoder import Encoder
from jdistill.errors import UserError
from jdistill.progress import log

FILES = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
DEPTH = 1000  # the deepest cut of a measure
CUTS = {"ndcg@10": "ndcg_cut_10", "recall@10": "recall_10", "recall@100": "recall_100", "recall@1000": "recall_1000"}


def evaluate_retrieval(encoder: Encoder, folder: Path) -> dict[str, dict[str, float]]:
    """Per collection ndcg@10, mrr@10, recall@10, recall@100 and recall@1000, 0 to 1, means over the judged queries.

    A document is its title, a space, and its text. The encoder's prompts for queries and documents are used. Queries
    without a relevant document are left out and counted in the log. Raises UserError where the folder holds no
    collection, or a file is missing or malformed.
    """
    return {path.name: evaluate_collection(encoder, path) for path in collections(folder)}


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


def evaluate_collection(encoder: Encoder, folder: Path) -> dict[str, float]:
    """The measures of one collection, as evaluate_retrieval."""
    documents = _read_documents(folder / FILES[0])
    queries = _read_queries(folder / FILES[1])
    judged = _read_judgements(folder / FILES[2])
    relevant = {query: judged[query] for query in queries if max(judged.get(query, {}).values(), default=0) > 0}
    if not relevant:
        raise UserError(f"{folder}: no query of {FILES[1]} has a relevant document in {FILES[2]}; do their ids match?")
    _report(folder, documents, queries, judged, relevant)

    document_ids, query_ids = list(documents), list(relevant)
    of_documents = encoder.encode(list(documents.values()), prompt=encoder.prompt_for("document"), show_progress=True)
    of_queries = encoder.encode(
        [queries[query] for query in query_ids], prompt=encoder.prompt_for("query"), show_progress=True
    )
    scores, rows = index.build(of_documents).search(of_queries, DEPTH)
    run = {
        query: {document_ids[row]: float(score) for row, score in zip(rows[q], scores[q], strict=True)}
        for q, query in enumerate(query_ids)
    }
    per_query = list(pytrec_eval.RelevanceEvaluator(relevant, {*CUTS.values(), "recip_rank"}).evaluate(run).values())
    # trec_eval has no cut for the reciprocal rank; below a tenth, the first relevant document came after place ten.
    first = [values["recip_rank"] if values["recip_rank"] >= 1 / 10 else 0.0 for values in per_query]
    means = {name: float(np.mean([values[cut] for values in per_query])) for name, cut in CUTS.items()}
    return {"ndcg@10": means.pop("ndcg@10"), "mrr@10": float(np.mean(first))} | means


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
