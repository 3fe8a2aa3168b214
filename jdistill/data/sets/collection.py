"""A retrieval collection: documents, queries, and which documents are relevant; put together from its three tables and checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.text.usable import has_surrogate

HIGHEST_GRADE = 10_000  # pytrec_eval takes memory for every grade up to the highest


@dataclass(frozen=True)
class Collection:
    """documents: id -> title, a space, text. queries: id -> text, those with a relevant document. relevant: query id ->
    document id -> grade."""

    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, int]]

    @cached_property
    def own_documents(self) -> frozenset[str]:
        """Ids of queries that are documents themselves, as ArguAna's are: the document of that id ends with the query's text, and nobody
        judged it relevant. Ids that documents and queries share by chance are none."""
        return frozenset(
            query
            for query in self.queries.keys() & self.documents.keys()
            if self.relevant.get(query, {}).get(query, 0) <= 0
            and _ends_with(self.documents[query], self.queries[query])
        )


def _ends_with(document: str, query: str) -> bool:
    """Whether a document's title and text end with the words of a query, which has some."""
    words = " ".join(query.split())
    return bool(words) and " ".join(document.split()).endswith(words)


@dataclass(frozen=True)
class TableNames:
    """Where a collection's tables lie, as its messages name them."""

    whole: str
    documents: str
    queries: str
    judgements: str


def joined(
    name: str,
    documents: dict[str, str],
    queries: dict[str, str],
    judgements: dict[str, dict[str, int]],
    tables: TableNames,
) -> Collection:
    """The collection of the queries that have a relevant document. Queries without one, judged queries and relevant documents
    that are not there are counted in the log. Raises UserError where no query has a relevant document, or none of these is there."""
    relevant = {query: judgements[query] for query in queries if max(judgements.get(query, {}).values(), default=0) > 0}
    if not relevant:
        raise UserError(
            f"{tables.whole}: no query of {tables.queries} has a relevant document in {tables.judgements}; do their ids match?"
        )
    log.info("%s: %d documents, %d queries", name, len(documents), len(relevant))
    wanted = {document for grades in relevant.values() for document, grade in grades.items() if grade > 0}
    if wanted.isdisjoint(documents):
        raise UserError(
            f"{tables.whole}: none of the {len(wanted)} relevant documents of {tables.judgements} is in {tables.documents}, so that no "
            "search finds one; do their ids match?"
        )
    for count, what in (
        (len(queries) - len(relevant), "queries have no relevant document and are left out"),
        (len(judgements.keys() - queries.keys()), f"judged queries are not in {tables.queries} and are left out"),
        (
            len(wanted - documents.keys()),
            f"relevant documents are not in {tables.documents} and count as not found",
        ),
    ):
        if count:
            log.warning("%s: %d %s", name, count, what)
    collection = Collection(name, documents, {query: queries[query] for query in relevant}, relevant)
    if collection.own_documents:
        log.info(
            "%s: %d queries are documents of it, which are left out of their own rankings",
            name,
            len(collection.own_documents),
        )
    return collection


def by_id(table: str, what: str, rows: Iterable[tuple[str, Any, str]]) -> dict[str, str]:
    """id -> text of rows (place, id, text); the first of a repeated id is kept, and they are counted in the log. what: documents or
    queries, for messages. Raises UserError for an id that is no string, and where there is no row."""
    texts: dict[str, str] = {}
    repeated = 0
    for place, name, text in rows:
        if not isinstance(name, str | int):
            raise UserError(f"{place}: its id is {name!r}; a string is needed")
        repeated += str(name) in texts
        texts.setdefault(str(name), text)
    if not texts:
        raise UserError(f"{table} holds no {what}")
    if repeated:
        log.warning("%s: %d %s repeat an id; the first of each is kept", table, repeated, what)
    return texts


def graded(table: str, rows: Iterable[tuple[str, str, str, int]]) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade of rows (place, query id, document id, grade). Of a document that a query judges twice the last
    grade counts, as BEIR's own reader has it; where they differ, they are counted in the log. Raises UserError for a grade that is none."""
    judgements: dict[str, dict[str, int]] = {}
    contradicted = 0
    for place, query, document, grade in rows:
        if abs(grade) > HIGHEST_GRADE:
            raise UserError(f"{place}: a score of {grade}; grades go up to {HIGHEST_GRADE:,}. Is it another column?")
        of_query = judgements.setdefault(query, {})
        contradicted += of_query.get(document, grade) != grade
        of_query[document] = grade
    if contradicted:
        log.warning(
            "WARNING: %s: %d rows judge a document otherwise than an earlier row of the same query; the last of each counts",
            table, contradicted,
        )  # fmt: skip
    return judgements


def title_and_text(place: str, row: dict[str, Any]) -> str:
    """A document's title, a space and its text. Raises UserError for one that is no string."""
    return f"{text_of(place, row, 'title')} {text_of(place, row, 'text')}".strip()


def text_of(place: str, row: dict[str, Any], key: str) -> str:
    """A row's text, empty where it has none. Raises UserError for what is no string."""
    text = row.get(key) or ""
    if not isinstance(text, str):
        raise UserError(f"{place}: {key} is {type(text).__name__}, not a string")
    if has_surrogate(text):
        raise UserError(f"{place}: {key} holds a lone surrogate (broken Unicode)")
    return text
