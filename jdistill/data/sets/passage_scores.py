"""The column `scores` of triplets: a reranker's score of each passage of a row, the positive's first."""

from __future__ import annotations

from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import parse_json, said

SCORES = "scores"
LARGEST_SCORE = 3.4028234e38  # of float32, in which a loss reads them


def read_scores(record: dict[str, Any], passages: int, where: str) -> list[float] | None:
    """The scores of a row, one a passage; None where it has none.

    Args:
      record: the row; scores are a list, in a table of text a JSON list.
      passages: how many it lists, the positive among them.
      where: the file and row, for messages.

    Raises: UserError for what is no list of numbers, too few or too many, and a number that is not finite in float32.
    """
    scores = record.get(SCORES)
    if isinstance(scores, str) and scores.strip():
        scores = parse_json(scores, f"{where}: the column {SCORES}")
    if scores is None or scores == "":
        return None
    if not isinstance(scores, list):
        raise UserError(f"{where}: {SCORES} is {said(scores)}, not a list of numbers")
    if len(scores) != passages:
        raise UserError(
            f"{where}: {len(scores)} {SCORES} for {passages} passages; one for the positive and one for each negative are needed, in their order"
        )
    for place, score in enumerate(scores, 1):
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise UserError(f"{where}: {SCORES} holds {said(score)} in place {place}, not a number")
        if not abs(score) <= LARGEST_SCORE:  # NaN too
            raise UserError(f"{where}: {SCORES} holds {said(score)} in place {place}; a finite number is needed")
    return [float(score) for score in scores]
