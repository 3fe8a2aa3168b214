"""BM25's words: in scripts without spaces each letter, with its marks; in all others as scikit-learn counts them, marks within them."""

from __future__ import annotations

import re
import unicodedata

import bm25s
import numpy as np
import pytest
from conftest import sentences

from jdistill.retrieval.bm25 import TOKEN_PATTERN, bm25_search

PLAIN = r"(?u)\b\w\w+\b"  # bm25s's own pattern


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("我用iPhone手机x拍照。", ["我", "用", "iPhone", "手", "机", "拍", "照"]),
        ("東京タワー・が ある", ["東", "京", "タ", "ワ", "ー", "が", "あ", "る"]),
        ("\u304b\u3099", ["\u304b\u3099"]),  # a letter and its mark, as some systems write them
        ("น้ำตก 12", ["น้", "ำ", "ต", "ก", "12"]),
        ("မြို့", ["မြို့"]),
        ("서울의 밤하늘 a", ["서울의", "밤하늘"]),
    ],
)
def test_letters_where_words_have_no_spaces(text: str, tokens: list[str]) -> None:
    assert re.compile(TOKEN_PATTERN).findall(text) == tokens


def test_other_texts_have_the_words_that_they_had() -> None:
    texts = [
        *sentences(50),
        "naïve café – it's x2 _a 3.14 été",
        "Привет, мир; ελληνικά 안녕하세요 שלום سلام",
        "a b",
        "",
    ]
    for text in texts:
        assert re.compile(TOKEN_PATTERN).findall(text) == re.compile(PLAIN).findall(text)
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    tokens = bm25s.tokenize(texts, stopwords="en", show_progress=False, return_ids=False)
    rows, scores = index.retrieve(tokens, k=10, show_progress=False)
    ours, our_rows = bm25_search(texts, texts, 10)[0](0, len(texts))
    np.testing.assert_array_equal(ours, scores)
    np.testing.assert_array_equal(our_rows, np.where(scores > 0, rows, -1))


@pytest.mark.parametrize(
    "text",
    [
        "नमस्ते भारत की राजधानी क्या है",  # Hindi
        "বাংলাদেশের রাজধানী কোথায়",  # Bengali
        "இந்தியாவின் தலைநகரம்",  # Tamil
        "భారతదేశ రాజధాని",  # Telugu
        "ભારતની રાજધાની",  # Gujarati
        "مُحَمَّدٌ رَسُولُ",  # Arabic with its vowels
        "שָׁלוֹם עוֹלָם",  # Hebrew with its vowels
        unicodedata.normalize("NFD", "déjà vu été"),
        "\U000110a7\U000110b0 x\u0301",  # beyond the first plane; one letter with a mark
    ],
)
def test_marks_part_no_word(text: str) -> None:
    assert re.compile(TOKEN_PATTERN).findall(f"a {text.replace(' ', ', ')}!") == text.split()


@pytest.mark.parametrize(
    ("query", "passages"),
    [
        ("长江在哪里入海", ["黄山在安徽省", "长江流入东海。", "今天天气很好"]),
        ("富士山の高さ", ["京都は古い", "富士山は三千メートルの高さです", "猫がいる"]),
        ("हिमालय कहाँ है", ["हमला कल हुआ", "हिमालय उत्तर में है", "हम लय में हैं"]),
        ("แม่น้ำอยู่ที่ไหน", ["วันนี้ฝนตก", "แม่น้ำอยู่ทางเหนือ", "สวัสดี"]),
    ],
)
def test_a_question_finds_the_passage_of_its_letters(query: str, passages: list[str]) -> None:
    search, score_of = bm25_search([query], passages, 3)
    scores, rows = search(0, 1)
    assert rows[0, 0] == 1 and scores[0, 0] > max(scores[0, 1], 0)
    np.testing.assert_allclose(score_of(0, [1]), scores[0, :1])


def test_an_accent_written_apart_is_the_letter_that_has_it() -> None:
    whole = "le café déjà vu"
    apart = unicodedata.normalize("NFD", whole)
    plain, _ = bm25_search([whole], [whole, "un autre texte"], 2)[0](0, 1)
    for query, passage in ((whole, apart), (apart, whole), (apart, apart)):
        search, score_of = bm25_search([query], [passage, "un autre texte"], 2)
        scores, rows = search(0, 1)
        np.testing.assert_array_equal(rows, [[0, -1]])
        np.testing.assert_array_equal(scores, plain)
        assert score_of(0, [0])[0] == scores[0, 0] > 0


def test_passages_without_a_word_are_no_hits() -> None:
    """Neither a stop word nor a single letter is counted."""
    search, score_of = bm25_search(["a cat", "the", "x"], ["a", "the", ""], 2)
    scores, rows = search(1, 5)
    np.testing.assert_array_equal(scores, np.zeros((2, 2)))
    np.testing.assert_array_equal(rows, np.full((2, 2), -1))
    np.testing.assert_array_equal(score_of(0, [0, 2]), [0, 0])
