"""Retrieval collections by datasets id: C-MTEB's layout (corpus and queries as splits, NAME-qrels beside) and MTEB's (as subsets)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jdistill.data.collection import Collection, Places, by_id, joined, text_of, title_and_text
from jdistill.data.hub import dataset_splits, dataset_subsets
from jdistill.errors import UserError

JUDGED_SPLITS = ("test", "dev", "validation")  # the first that there is; mteb evaluates C-MTEB's retrieval on dev
QUERY, DOCUMENT, GRADE = ("query-id", "qid"), ("corpus-id", "pid"), ("score",)
ID = ("_id", "id")


def hub_collection(source: str, key: str) -> Collection:
    """The collection of a datasets id such as C-MTEB/T2Retrieval or mteb/scifact.

    Texts are the tables `corpus` (id or _id, title where there is one, text) and `queries` (id or _id, text): subsets of the id, or
    splits. Judgements (qid or query-id, pid or corpus-id, score) are the subset `qrels` or `default` of an id with subsets, else the
    dataset SOURCE-qrels; of their splits the first of JUDGED_SPLITS. Raises UserError for a table or column that is missing, a
    grade that is no whole number, and as collection.joined does.
    """
    subsets = dataset_subsets(source, key)
    beside = [name for name in ("qrels", "default") if name in subsets and "corpus" in subsets]
    judged_by = f"{source}:{beside[0]}" if beside else f"{source}-qrels"
    places = Places(source, f"{source} corpus", f"{source} queries", judged_by)
    documents = by_id(
        places.documents,
        "documents",
        (
            (place, _cell(place, row, ID), title_and_text(place, row))
            for place, row in _texts(source, "corpus", subsets, key)
        ),
    )
    judged = _judgements(judged_by, key)
    return joined(source.rsplit("/", 1)[-1], documents, _queries(source, subsets, key), judged, places)


def hub_queries(source: str, key: str) -> dict[str, str]:
    """id -> text of every query of a datasets id, those without judgements too."""
    return _queries(source, dataset_subsets(source, key), key)


def _queries(source: str, subsets: list[str], key: str) -> dict[str, str]:
    rows = (
        (place, _cell(place, row, ID), text_of(place, row, "text"))
        for place, row in _texts(source, "queries", subsets, key)
    )
    return by_id(f"{source} queries", "queries", rows)


def _texts(source: str, table: str, subsets: list[str], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) of the table `corpus` or `queries`."""
    splits = dataset_splits(f"{source}:{table}" if table in subsets else source, key)
    if table not in splits and not (table in subsets and len(splits) == 1):
        raise UserError(
            f"--{key}={source}: a retrieval collection has corpus and queries as splits or subsets; "
            f"there are the splits {', '.join(splits)} and the subsets {', '.join(subsets)}"
        )
    rows = splits[table] if table in splits else next(iter(splits.values()))
    return _rows(f"{source} {table}", rows, ("text",))


def _judgements(source: str, key: str) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade."""
    splits = dataset_splits(source, key)
    split = next((name for name in JUDGED_SPLITS if name in splits), None)
    if split is None:
        raise UserError(f"--{key}: {source} has no split {' or '.join(JUDGED_SPLITS)}, only {', '.join(splits)}")
    found: dict[str, dict[str, int]] = {}
    for place, row in _rows(f"{source} {split}", splits[split], ()):
        query, document, grade = (_cell(place, row, names) for names in (QUERY, DOCUMENT, GRADE))
        if isinstance(grade, bool) or not isinstance(grade, int | float) or grade != int(grade):
            raise UserError(f"{place}: score is {grade!r}; a whole number is needed")
        found.setdefault(str(query), {})[str(document)] = int(grade)
    return found


def _rows(table: str, rows: Any, needed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    missing = [name for name in needed if name not in rows.column_names]
    if missing:
        raise UserError(f"{table}: no column {', '.join(missing)}; there are {', '.join(rows.column_names)}")
    return ((f"{table} row {i}", row) for i, row in enumerate(rows, 1))


def _cell(place: str, row: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in row:
            return row[name]
    raise UserError(f"{place}: no column {' or '.join(names)}; there are {', '.join(row)}")
