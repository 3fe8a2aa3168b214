"""Search by words (BM25), for mining."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from jdistill.retrieval.mining import Search

# Blocks of the scripts that put no space between words: Thai and Lao, Burmese, Khmer, kana, Han. Hangul does, and stays in words.
UNSPACED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3040, 0x30FF), (0x31F0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF),
)  # fmt: skip
MARKS = range(0x300, 0x20000)  # where combining marks lie, but for the variants of Han


def _token_pattern() -> str:
    """A regular expression of BM25's tokens: of those scripts each letter with its marks, else a letter and what letters and marks follow.

    Of a mark, such as a vowel of Hindi or an accent written apart, \\w is not true. A letter alone is no word.
    """
    letters = _ranges(UNSPACED)
    unspaced = {code for first, last in UNSPACED[:5] for code in range(first, last + 1)}  # Han has no marks
    categories = map(unicodedata.category, map(chr, MARKS))
    marks = {code for code, category in zip(MARKS, categories, strict=True) if category[0] == "M"}
    of_letter, of_word = _ranges(_runs(marks & unspaced)), _ranges(_runs(marks - unspaced))
    word, mark = rf"[^\W{letters}]", f"[{of_word}]"
    in_marks = f"{word}{mark}+(?:{word}|{mark})*"  # whose first letter has one
    return rf"(?:(?=[{letters}])\w)[{of_letter}]*|{word}{{2,}}(?:{mark}+{word}*)*|{in_marks}"


def _runs(codes: set[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of numbers without a gap."""
    firsts = sorted(code for code in codes if code - 1 not in codes)
    lasts = sorted(code for code in codes if code + 1 not in codes)
    return list(zip(firsts, lasts, strict=True))


def _ranges(runs: Iterable[tuple[int, int]]) -> str:
    """What stands for them in a class of a regular expression."""
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in runs)


TOKEN_PATTERN = _token_pattern()


def bm25_search(
    queries: Sequence[str], passages: Sequence[str], window: int
) -> tuple[Search, Callable[[int, Sequence[int]], np.ndarray]]:
    """search and score_of by BM25 (Lucene's form, by bm25s; English stop words left out; TOKEN_PATTERN is what a word is).

    An accent written apart is the letter that has it (Unicode's NFC). Passages without one such word are none that any query hits.
    """
    import bm25s  # which runs a JAX program as it is imported, and processes must be connected before the first one

    tokenize = partial(bm25s.tokenize, token_pattern=TOKEN_PATTERN, stopwords="en", show_progress=False)
    words, window = tokenize(_composed(passages)), min(window, len(passages))
    if not words.vocab:  # of which bm25s makes no index
        return partial(_no_hit, len(queries), window), lambda _, rows: np.zeros(len(rows), np.float32)
    index = bm25s.BM25()
    index.index(words, show_progress=False)

    def search(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        tokens = tokenize(_composed(queries[start:stop]), return_ids=False)
        rows, scores = index.retrieve(tokens, k=window, show_progress=False)
        return scores, np.where(scores > 0, rows, -1)  # no common word: no candidate

    def score_of(i: int, rows: Sequence[int]) -> np.ndarray:
        tokens = tokenize(_composed([queries[i]]), return_ids=False)[0]
        in_vocabulary = [token for token in tokens if token in index.vocab_dict]
        return index.get_scores(in_vocabulary)[list(rows)] if in_vocabulary else np.zeros(len(rows))

    return search, score_of


def _composed(texts: Iterable[str]) -> list[str]:
    return [unicodedata.normalize("NFC", text) for text in texts]


def _no_hit(queries: int, window: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """What a search answers that hits nothing."""
    shape = (min(stop, queries) - start, window)
    return np.zeros(shape, np.float32), np.full(shape, -1, np.int32)
