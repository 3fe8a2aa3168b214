"""Search: the index of a run, BM25, hard negatives."""
