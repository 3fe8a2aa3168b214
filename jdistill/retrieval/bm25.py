"""Search by words (BM25), for mining."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jdistill.retrieval.mining import Search


def bm25_search(
    queries: Sequence[str], passages: Sequence[str], window: int
) -> tuple[Search, Callable[[int, Sequence[int]], np.ndarray]]:
    """search and score_of by BM25 (Lucene's form, by bm25s; English stop words left out)."""
    import bm25s  # which runs a JAX program as it is imported, and processes must be connected before the first one

    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(passages), stopwords="en", show_progress=False), show_progress=False)
    window = min(window, len(passages))

    def search(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = bm25s.tokenize(list(queries[start:stop]), stopwords="en", show_progress=False, return_ids=False)
        rows, scores = index.retrieve(tokens, k=window, show_progress=False)
        return scores, np.where(scores > 0, rows, -1)  # no common word: no candidate

    def score_of(i: int, rows: Sequence[int]) -> np.ndarray:
        tokens = bm25s.tokenize([queries[i]], stopwords="en", show_progress=False, return_ids=False)[0]
        in_vocabulary = [token for token in tokens if token in index.vocab_dict]
        return index.get_scores(in_vocabulary)[list(rows)] if in_vocabulary else np.zeros(len(rows))

    return search, score_of
