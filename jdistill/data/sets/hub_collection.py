"""Retrieval collections by datasets id: C-MTEB's layout (corpus and queries as splits, NAME-qrels beside) and MTEB's (as subsets)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.collection import (
    Collection,
    TableNames,
    by_id,
    graded,
    joined,
    text_of,
    title_and_text,
)
from jdistill.data.text.hub import dataset_splits, dataset_subsets

JUDGED_SPLITS = (
    "test",
    "dev",
    "validation",
)  # the first that holds something; mteb evaluates C-MTEB's retrieval on dev
ID_COLUMNS, TEXT_COLUMNS = ("_id", "id"), ("text",)
QUERY_ID_COLUMNS, DOCUMENT_ID_COLUMNS, GRADE_COLUMNS = ("query-id", "qid"), ("corpus-id", "pid"), ("score",)


@dataclass(frozen=True)
class HubCollection:
    """The three tables of a datasets id, loaded, with their columns checked. tables: as messages name them."""

    name: str
    corpus: Any
    queries: Any
    judgements: Any
    tables: TableNames

    def query_texts(self) -> dict[str, str]:
        """id -> text of every query, those without judgements too."""
        rows = (
            (place, _cell(row, ID_COLUMNS), text_of(place, row, "text"))
            for place, row in _rows(self.tables.queries, self.queries)
        )
        return by_id(self.tables.queries, "queries", rows)

    def read(self) -> Collection:
        """The collection. Raises UserError for a grade that is no whole number, and as collection.joined does."""
        rows = _rows(self.tables.documents, self.corpus)
        documents = by_id(
            self.tables.documents,
            "documents",
            ((place, _cell(row, ID_COLUMNS), title_and_text(place, row)) for place, row in rows),
        )
        judgements = graded(self.tables.judgements, self._judgement_rows())
        return joined(self.name, documents, self.query_texts(), judgements, self.tables)

    def _judgement_rows(self) -> Iterator[tuple[str, str, str, int]]:
        """(place, query id, document id, grade) of each row."""
        for place, row in _rows(self.tables.judgements, self.judgements):
            query, document, grade = (
                _cell(row, names) for names in (QUERY_ID_COLUMNS, DOCUMENT_ID_COLUMNS, GRADE_COLUMNS)
            )
            if isinstance(grade, bool) or not isinstance(grade, int | float) or not float(grade).is_integer():
                raise UserError(f"{place}: score is {grade!r}; a whole number is needed")
            yield place, str(query), str(document), int(grade)


def open_hub_collection(source: str, key: str) -> HubCollection:
    """The tables of a datasets id such as C-MTEB/T2Retrieval, mteb/scifact, or mteb/msmarco:dev, whose dev split judges.

    Texts are the tables `corpus` (id or _id, title where there is one, text) and `queries` (id or _id, text): subsets of the id, or
    splits. Judgements (qid or query-id, pid or corpus-id, score) are the subset `qrels` or `default` of an id with subsets, else the
    dataset SOURCE-qrels; the split is the one named, or the first of JUDGED_SPLITS that holds a row. Raises UserError for a
    table, split or column that is missing.
    """
    name, _, split = source.partition(":")
    subsets = dataset_subsets(name, key, ("corpus", "queries", "qrels", "default"))
    where = f"--{key}: {name}"
    corpus = _checked(f"{where} corpus", _texts(name, "corpus", subsets, key), (ID_COLUMNS, TEXT_COLUMNS))
    queries = _checked(f"{where} queries", _texts(name, "queries", subsets, key), (ID_COLUMNS, TEXT_COLUMNS))
    beside = [subset for subset in ("qrels", "default") if subset in subsets and "corpus" in subsets]
    judged_by = f"{name}:{beside[0]}" if beside else f"{name}-qrels"
    splits = dataset_splits(judged_by, key)
    named = (split,) if split else JUDGED_SPLITS
    split = next((candidate for candidate in named if candidate in splits and len(splits[candidate])), "")
    if not split:
        raise UserError(f"--{key}={source}: {judged_by} has no split {' or '.join(named)}, only {', '.join(splits)}")
    log.info("%s: judged by the split %s of %s", name, split, judged_by)
    judgements = _checked(
        f"--{key}: {judged_by} {split}", splits[split], (QUERY_ID_COLUMNS, DOCUMENT_ID_COLUMNS, GRADE_COLUMNS)
    )
    tables = TableNames(f"--{key}={source}", f"{where} corpus", f"{where} queries", f"--{key}: {judged_by} {split}")
    return HubCollection(name.rsplit("/", 1)[-1], corpus, queries, judgements, tables)


def _checked(place: str, table: Any, columns: Sequence[tuple[str, ...]]) -> Any:
    """The table, which has a column of each of these names."""
    for names in columns:
        if not set(names) & set(table.column_names):
            raise UserError(f"{place}: no column {' or '.join(names)}; there are {', '.join(table.column_names)}")
    return table


def _texts(name: str, table: str, subsets: list[str], key: str) -> Any:
    """The table `corpus` or `queries`."""
    splits = (
        {}
        if "default" not in subsets and table not in subsets
        else dataset_splits(f"{name}:{table}" if table in subsets else name, key)
    )
    if table not in splits and not (table in subsets and len(splits) == 1):
        raise UserError(
            f"--{key}={name}: a retrieval collection has corpus and queries as splits or subsets; "
            f"there are the splits {', '.join(splits) or '(none)'} and the subsets {', '.join(subsets) or '(none)'}"
        )
    return splits[table] if table in splits else next(iter(splits.values()))


def _rows(where: str, table: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((f"{where} row {i}", row) for i, row in enumerate(table, 1))


def _cell(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next(row[name] for name in names if name in row)
