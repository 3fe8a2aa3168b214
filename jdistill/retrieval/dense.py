"""Search by an encoder's vectors, for mining."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jdistill.encoder.encoder import Encoder
from jdistill.retrieval import index
from jdistill.retrieval.mining import Search


def dense_search(
    model: Encoder, queries: Sequence[str], passages: Sequence[str], window: int
) -> tuple[Search, Callable[[int, Sequence[int]], np.ndarray]]:
    """search and score_of (retrieval.mining) by a bi-encoder's cosines, with its prompts for queries and documents."""
    passage_vectors = index.unit_rows(model.encode(passages, prompt=model.prompt_for("document"), show_progress=True))
    filled = index.fill_index(passage_vectors, [passage_vectors])  # which are of unit length
    del passage_vectors  # the index, which is exact, holds them
    query_vectors = index.unit_rows(model.encode(queries, prompt=model.prompt_for("query"), show_progress=True))

    def search(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return filled.search(query_vectors[start:stop], window)

    def score_of(i: int, rows: Sequence[int]) -> np.ndarray:
        cosines: np.ndarray = filled.faiss_index.reconstruct_batch(np.array(rows, np.int64)) @ query_vectors[i]
        return cosines

    return search, score_of
