"""Holding out: evaluation sentences in any spelling are found; the split depends on each text alone."""

from __future__ import annotations

import random

import pytest
from naive import remove_evaluation_texts

from jdistill.data.text.holdout import comparable, split_held_out

TEXTS = [f"Sentence number {i}." for i in range(2000)]


@pytest.mark.parametrize(
    "spelling",
    [
        "A man's dog, brown and old, doesn't bark.",
        "a man 's dog , brown and old , does n't bark .",
        "A MAN’S DOG, brown and old, doesn’t bark",
        "  A man's  dog,\tbrown and old, doesn't bark!  ",
        "“A man's dog, brown and old, doesn't bark.”",
        "Ａ man's dog, brown and old, doesn't bark.",
    ],
)
def test_an_evaluation_sentence_is_removed_in_any_spelling(spelling: str) -> None:
    texts = ["Before.", spelling, "After."]
    assert remove_evaluation_texts(texts, ["A man's dog, brown and old, doesn't bark."]) == (["Before.", "After."], 1)


def test_other_texts_stay_and_keep_their_order() -> None:
    texts = ["A man's dog barks.", "A man dogs bark.", "...", "C++ and C", "Straße"]
    assert remove_evaluation_texts(texts, iter(["A man's dog bark.", "!?", "", "C", "C and C"])) == (texts, 0)
    assert remove_evaluation_texts(texts, []) == (texts, 0)
    kept = ["A man's dog barks.", "A man dogs bark.", "C++ and C"]
    assert remove_evaluation_texts(texts, ["...", "STRASSE."]) == (kept, 2)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("What is C++?", "what is C#"),
        ("What is C++?", "What is C?"),
        ("What is C#?", "What is C?"),
        ("राजा", "राज"),  # a king, and a secret: the vowel is a mark
        ("เสื้อ ที่", "เสื้อ ท"),
        ("It costs 5 €.", "It costs 5 $."),
        ("€5 a day", "$5 a day"),
    ],
)
def test_texts_that_a_mark_or_a_sign_at_an_end_tells_apart(text: str, other: str) -> None:
    assert comparable(text) != comparable(other)


@pytest.mark.parametrize(
    "spelling",
    [
        "«राजा!»", "राजा।", " — राजा…", "(राजा)", "# राजा", "*राजा*", "_राजा_", "राजा 👑",
        "👑\ufe0f राजा ❤\ufe0f", "• राजा", "राजा\u200b", "｢राजा｣。",
    ],
)  # fmt: skip
def test_punctuation_and_pictures_at_the_ends_tell_nothing_apart(spelling: str) -> None:
    assert comparable(spelling) == "राजा"


def test_what_is_punctuation_alone_stays() -> None:
    assert [comparable(text) for text in ("...", " + ", "?! #", "", "_")] == ["...", "+", "?!#", "", "_"]


def test_the_split_has_the_count_asked_for_and_keeps_order() -> None:
    train, held_out = split_held_out(TEXTS, 100, seed=0)
    assert len(held_out) == 100
    assert sorted(train + held_out) == sorted(TEXTS)
    assert train == [text for text in TEXTS if text in set(train)]
    assert held_out == [text for text in TEXTS if text in set(held_out)]
    assert split_held_out(TEXTS, 0, seed=0) == (TEXTS, [])
    assert split_held_out(TEXTS[:5], 9, seed=0) == ([], TEXTS[:5])


def test_the_split_depends_on_the_texts_and_the_seed_alone() -> None:
    held_out = set(split_held_out(TEXTS, 100, seed=0)[1])
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    assert set(split_held_out(shuffled, 100, seed=0)[1]) == held_out
    other = set(split_held_out(TEXTS, 100, seed=1)[1])
    assert len(other & held_out) < 20


def test_text_that_is_added_moves_no_training_text_to_the_held_out_side() -> None:
    train, held_out = split_held_out(TEXTS, 100, seed=0)
    added = [f"An added text, {i}." for i in range(200)]
    _, later = split_held_out(added + TEXTS, 100, seed=0)
    assert not set(later) & set(train)
    assert len(set(later) & set(held_out)) >= 75
