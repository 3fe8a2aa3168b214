"""What was mined as triplets with scores of their passages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.files import writing_beside

# queries, passages (N each) -> scores [N]
Score = Callable[[Sequence[str], Sequence[str]], np.ndarray]


def write_scored(records: Sequence[dict[str, Any]], out: Path, score: Score) -> None:
    """Writes triplets as .jsonl: query, positive, negatives, and scores, the positive's first.

    Args:
      records: as retrieval.mining.mine writes them; one without a positive gets no line.
      out: the file.
      score: of each positive and negative.
    """
    triplets = [record for record in records if record["positive"]]
    passages = [[record["positive"], *record["negatives"]] for record in triplets]
    queries = [record["query"] for record, texts in zip(triplets, passages, strict=True) for _ in texts]
    together = score(queries, [text for texts in passages for text in texts])
    scores = np.split(together, np.cumsum([len(texts) for texts in passages])[:-1]) if triplets else []
    with writing_beside(out) as beside, open(beside, "w", encoding="utf-8") as file:
        for record, of_record in zip(triplets, scores, strict=True):
            file.write(json.dumps(record | {"scores": of_record.tolist()}, ensure_ascii=False) + "\n")
