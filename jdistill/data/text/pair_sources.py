"""What config.pairs names: rows of a query and its positive, read as text of two roles, without labels."""

from __future__ import annotations

from dataclasses import replace

from jdistill.core.errors import UserError
from jdistill.data.text.records import records_of
from jdistill.data.text.text_sources import TextSource, text_sources

COLUMN_OF_ROLE = {"query": "query", "document": "positive"}


def pair_sources(pairs: str, key: str = "config.pairs") -> tuple[TextSource, ...]:
    """The queries of all sources of pairs, then their positives, each a source of text in its role.

    Args:
      pairs: PATH[*WEIGHT],… as text_sources takes them; empty: no source.
      key: the config key, for messages.

    Raises: UserError as text_sources, and for a source with a role.
    """
    named = text_sources(pairs, key)
    for source in named:
        if source.role:
            raise UserError(
                f"--{key}={pairs}: the columns of pairs have their roles, query and document; leave @{source.role} out"
            )
    return tuple(
        replace(source, role=role, column=column) for role, column in COLUMN_OF_ROLE.items() for source in named
    )


def check_pairs(source: TextSource) -> None:
    """Looks at the first row of a source of pairs. Raises UserError where there is none, or it lacks a column."""
    where, record = next(records_of(source.path, source.key), ("", None))
    if not where:
        raise UserError(f"--{source.key}={source.path} holds no row")
    if not isinstance(record, dict) or not set(COLUMN_OF_ROLE.values()) <= record.keys():
        there = sorted(map(str, record)) if isinstance(record, dict) else type(record).__name__
        raise UserError(
            f"{where}: --{source.key} needs the columns {' and '.join(COLUMN_OF_ROLE.values())}; there are {there}"
        )
