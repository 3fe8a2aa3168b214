"""What was mined of queries as triplets: a line for each of a query's positives, with scores of its passages where they are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.files import writing_beside

# queries, passages (N each) -> scores [N]
Score = Callable[[Sequence[str], Sequence[str]], np.ndarray]


def write_triplets(
    records: Sequence[dict[str, Any]],
    positives: Sequence[Sequence[str]],
    out: Path,
    check_out: Callable[[], None],
    score: Score | None = None,
) -> None:
    """Writes triplets as .jsonl: query, positive, negatives, which all positives of a query have alike, and scores.

    Args:
      records: of each query, as retrieval.mining.mine writes them.
      positives: of each query; one without any gets no line.
      check_out: raises UserError where `out` may not be replaced; asked when all is ready to take its place.
      score: of each positive and negative, which are then a column, the positive's first; None: no such column.
    """
    passages = [[*texts, *record["negatives"]] for record, texts in zip(records, positives, strict=True)]
    scores: Sequence[np.ndarray | None] = [None] * len(records)
    if score is not None:
        queries = [record["query"] for record, texts in zip(records, passages, strict=True) for _ in texts]
        together = score(queries, [text for texts in passages for text in texts])
        scores = np.split(together, np.cumsum([len(texts) for texts in passages])[:-1])
    with writing_beside(out) as beside, open(beside, "w", encoding="utf-8") as file:
        for record, texts, of_query in zip(records, positives, scores, strict=True):
            for line in _lines(record, texts, of_query):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        check_out()


def _lines(record: dict[str, Any], positives: Sequence[str], scores: np.ndarray | None) -> Iterator[dict[str, Any]]:
    """The triplets of a query. scores: of its positives, then its negatives."""
    for i, positive in enumerate(positives):
        line = record | {"positive": positive}
        if scores is not None:
            line["scores"] = [*scores[[i]].tolist(), *scores[len(positives) :].tolist()]
        yield line
