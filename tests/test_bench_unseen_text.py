"""bench/unseen_text.py: which words of a document a corpus holds, against a search of every line in every document."""

from __future__ import annotations

import random
import sys

import numpy as np
from commands import ROOT

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import unseen_text

from jdistill.data.sets.collection import Collection


def test_covered_words_against_a_search_of_every_line_at_every_place() -> None:
    draw = random.Random(0)
    documents = [tuple(draw.choices("abc", k=draw.randint(0, 40))) for _ in range(30)]
    cut = [words[at : at + draw.randint(4, 12)] for words in documents for at in (0, 7, 15)]
    lines = [line for line in cut if line] + [tuple(draw.choices("abc", k=7)) for _ in range(30)]
    marks, found = unseen_text.covered(documents, lines)
    by_hand, rows = [[False] * len(words) for words in documents], set()
    for row, line in enumerate(lines):
        for i, words in enumerate(documents):
            for at in range(len(words) - len(line) + 1) if len(line) >= unseen_text.LEAST else ():
                if words[at : at + len(line)] == line:
                    by_hand[i][at : at + len(line)] = [True] * len(line)
                    rows.add(row)
    assert [of_one.tolist() for of_one in marks] == by_hand
    assert found == rows and 0 < len(rows) < len(lines)


def test_words_are_compared_whatever_stands_between_them() -> None:
    assert unseen_text.words_of("The “cat's\n bed”, re-made.") == unseen_text.words_of("the cat ' s bed re made")


def test_a_passage_is_looked_for_by_its_sentences_and_a_query_whole() -> None:
    sentences, rows = unseen_text.sentences_of(["One two. Three four! Five?", "six"])
    assert sentences == [("one", "two"), ("three", "four"), ("five",), ("six",)] and rows == [0, 0, 0, 1]
    collection = Collection("c", {"d": "a b"}, {"1": "What is it?", "2": "what is it", "3": "Why?"}, {})
    row = unseen_text.row_of(collection, [np.array([True, False])], {("what", "is", "it")})
    assert (row["queries"], row["distinct"], row["that are a text"]) == (3, 2, 2)
    assert row["percent of them in the texts"] == 50.0 and row["with a sentence of the texts"] == 1
