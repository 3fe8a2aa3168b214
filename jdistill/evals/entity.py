"""Entity resolution, SimTDE section 4.2: how often the entity nearest to a query is the right one (Recall@1)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.text.readers import regular
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.retrieval.index import unit_rows

ENTITY_COLUMNS = ("query", "entity", "label")
TIE = 1e-6  # cosines nearer than this are equal: the same text varies by as much with the batch it is encoded in
COSINES_AT_ONCE = 1 << 24  # cosines held at once


@dataclass(frozen=True)
class EntitySet:
    """Queries with the entities that a file lists for them.

    Args:
      queries, entities: distinct, Q and E of them.
      listed: of each query the numbers of its entities.
      right: of each query the numbers of those labelled 1.
    """

    queries: list[str]
    entities: list[str]
    listed: list[list[int]]
    right: list[list[int]]


def evaluate_entity(encoder: TextEncoder, path: Path) -> dict[str, float]:
    """Recall@1, 0 to 1, over the queries that have an entity labelled 1.

    "recall@1": the candidates are the entities that the file lists for the query. "recall@1_catalogue": they are all
    the distinct entities of the file, and those not listed for the query count as wrong. A hit needs a right entity to
    beat every wrong one: where a wrong one is as near (within 1e-6) it is a miss, so that a model which gives all texts
    the same vector scores nothing by the order of the file. "queries" and "entities" are counts. Raises UserError as
    read_entities.
    """
    data = read_entities(path)
    scored = [q for q, right in enumerate(data.right) if right]
    sure = sum(len(data.listed[q]) == len(data.right[q]) for q in scored)
    for count, what in (
        (len(data.queries) - len(scored), "queries have no entity labelled 1 and are left out"),
        (sure, "queries list no wrong entity: within their own candidates they always hit"),
    ):
        if count:
            log.warning("%s: %d %s", path, count, what)
    queries = unit_rows(encoder.encode([data.queries[q] for q in scored], show_progress=True))
    entities = unit_rows(encoder.encode(data.entities, show_progress=True))
    within = across = 0
    step = max(1, COSINES_AT_ONCE // len(entities))
    for start in range(0, len(scored), step):
        cosines = queries[start : start + step] @ entities.T
        for row, q in zip(cosines, scored[start : start + step], strict=True):
            best = row[data.right[q]].max()
            row[data.right[q]] = -np.inf
            within += bool(best > row[data.listed[q]].max() + TIE)
            across += bool(best > row.max() + TIE)
    return {
        "recall@1": within / len(scored),
        "recall@1_catalogue": across / len(scored),
        "queries": len(scored),
        "entities": len(data.entities),
    }


def read_entities(path: Path) -> EntitySet:
    """Reads a .csv with a header query,entity,label; other columns are ignored, a repeated row counts once.

    Raises UserError naming the line for a missing column or cell, an empty query or entity, a label other than 0 or 1,
    a pair that has both labels, and where no query has an entity labelled 1.
    """
    queries: dict[str, int] = {}
    entities: dict[str, int] = {}
    seen: dict[tuple[int, int], tuple[str, int]] = {}  # label and line of each pair
    regular(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            header = [cell.strip() for cell in next(reader, [])]
            if not set(ENTITY_COLUMNS) <= set(header):
                raise UserError(
                    f"{path}, line 1: columns {', '.join(ENTITY_COLUMNS)} are needed; "
                    f"found is {', '.join(header) or 'nothing'}"
                )
            columns = [header.index(name) for name in ENTITY_COLUMNS]
            for cells in filter(any, reader):
                line = reader.line_num
                if len(cells) != len(header):
                    raise UserError(f"{path}, line {line}: {len(cells)} cells under {len(header)} columns")
                query, entity, label = (cells[column].strip() for column in columns)
                if not query or not entity:
                    raise UserError(f"{path}, line {line}: the {'entity' if query else 'query'} is empty")
                if label not in ("0", "1"):
                    raise UserError(f"{path}, line {line}: the label is {label!r}, not 0 or 1")
                pair = queries.setdefault(query, len(queries)), entities.setdefault(entity, len(entities))
                before, where = seen.setdefault(pair, (label, line))
                if before != label:
                    raise UserError(
                        f"{path}, line {line}: {query!r} with {entity!r} has label {label}, "
                        f"but {before} in line {where}; keep one"
                    )
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error.reason} at or after byte {error.start})") from None
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not a well-formed row of a .csv ({error})") from None
    listed: list[list[int]] = [[] for _ in queries]
    right: list[list[int]] = [[] for _ in queries]
    for (q, e), (label, _) in seen.items():
        listed[q].append(e)
        if label == "1":
            right[q].append(e)
    if not any(right):
        raise UserError(f"{path}: no query has an entity labelled 1")
    return EntitySet(list(queries), list(entities), listed, right)
