"""Retrieval collections of a source: a folder of collections in BEIR layout, pkg: to one, or a datasets id."""

from __future__ import annotations

from collections.abc import Iterator

from jdistill.data.sets.beir import beir_queries, collections, read_collection
from jdistill.data.sets.collection import Collection
from jdistill.data.sets.hub_collection import open_hub_collection
from jdistill.data.text.locations import local_path


def read_collections(source: str, key: str = "beir") -> Iterator[Collection]:
    """The collections of a source, one in memory at a time. key: the flag or config key that named it. Raises UserError as
    beir.read_collection and hub_collection do."""
    path = local_path(source, key)
    if path is None:
        yield open_hub_collection(source, key).read()
    else:
        yield from map(read_collection, collections(path))


def query_texts(source: str, key: str = "beir") -> Iterator[str]:
    """The text of every query of every collection of a source, those without judgements too. Raises UserError where a table that
    read_collections will read is missing, so that who asks first learns it early."""
    path = local_path(source, key)
    if path is None:
        yield from open_hub_collection(source, key).query_texts().values()
    else:
        yield from beir_queries(path)
