"""Cosines of sentences by words alone: the baseline beside which a model's figures on pairs of sentences are read."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from jdistill.retrieval.bm25 import TOKEN_PATTERN


def word_cosines(sets: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[np.ndarray]:
    """Of each pair the cosine of the two sentences' counts of words, each times the word's inverse document frequency.

    What a word is, retrieval.bm25 says; upper case counts as lower. A word's frequency is that among the distinct sentences of all sets, so
    that no other text is read: idf = 1 + ln((1 + sentences) / (1 + sentences with the word)).

    Args:
      sets: left and right sentences of each, N and N.

    Returns: float64 [N] for each set, 0 to 1; 0 where a sentence has no word.
    """
    words = {text: _words(text) for left, right in sets for text in (*left, *right)}
    frequency = Counter(word for of in words.values() for word in of)
    idf = {word: 1.0 + math.log((1 + len(words)) / (1 + count)) for word, count in frequency.items()}
    weights = {text: {word: count * idf[word] for word, count in of.items()} for text, of in words.items()}
    lengths = {text: math.sqrt(math.fsum(x * x for x in of.values())) for text, of in weights.items()}

    def cosine(left: str, right: str) -> float:
        a, b = weights[left], weights[right]
        shared = math.fsum(a[word] * b[word] for word in a.keys() & b.keys())  # exact, whatever the order of a set
        return shared / (lengths[left] * lengths[right]) if shared else 0.0

    return [np.array([cosine(*pair) for pair in zip(left, right, strict=True)], float) for left, right in sets]


def _words(text: str) -> Counter[str]:
    return Counter(re.findall(TOKEN_PATTERN, unicodedata.normalize("NFC", text).lower()))
