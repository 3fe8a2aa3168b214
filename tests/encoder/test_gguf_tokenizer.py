"""The tokens that a GGUF file's tokenizer puts about a text, where the file has the fields that published ones have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers.pre_tokenizers import ByteLevel

from jdistill.core.errors import UserError
from jdistill.encoder.formats.gguf_tokenizer import read_tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581hi", "\u2581the"]
BERT = {
    "tokenizer.ggml.model": "bert",
    "tokenizer.ggml.pre": "jina-v2-en",
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.token_type": [3] * 5 + [1] * 2,
    "tokenizer.ggml.unknown_token_id": 1,
}
BYTES = sorted(ByteLevel.alphabet())
BYTE_PAIRS = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": [*BYTES, "<|begin_of_text|>", "<|end_of_text|>"],
    "tokenizer.ggml.token_type": [1] * len(BYTES) + [3, 3],
    "tokenizer.ggml.merges": [],
    "tokenizer.ggml.eos_token_id": len(BYTES) + 1,
}
BEGINS = {"tokenizer.ggml.bos_token_id": len(BYTES)}


def tokens_of(fields: dict[str, Any], text: str, **more: Any) -> list[str]:
    named = {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    tokenizer = read_tokenizer(fields | named, Path("m.gguf"))
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


@pytest.mark.parametrize(
    "ids",
    [
        {"cls_token_id": 2, "seperator_token_id": 3},  # as bge's, jina's and arctic's files have them
        {"bos_token_id": 2, "seperator_token_id": 3},
        {},
    ],
)
def test_word_pieces_begin_and_end_by_whichever_field_names_their_ends(ids: dict[str, int]) -> None:
    assert tokens_of(BERT, "hi the", **ids) == ["[CLS]", "hi", "the", "[SEP]"]


def test_the_ends_of_word_pieces_are_the_fields_before_the_usual_names() -> None:
    ids = {"bos_token_id": 5, "cls_token_id": 2, "seperator_token_id": 4}
    assert tokens_of(BERT, "the", **ids) == ["hi", "the", "[MASK]"]
    assert tokens_of(BERT, "the", add_bos_token=False, **ids) == ["the", "[MASK]"]


@pytest.mark.parametrize("as_written", ["\u2581covid", "covid"])
def test_a_token_that_was_added_to_word_pieces_is_found(as_written: str) -> None:
    """By llama.cpp's converter it has the mark of a word's beginning, by ours none."""
    fields = BERT | {
        "tokenizer.ggml.tokens": [*PIECES, as_written],
        "tokenizer.ggml.token_type": [3] * 5 + [1] * 2 + [4],
    }
    assert tokens_of(fields, "the covid hi") == ["[CLS]", "the", "covid", "hi", "[SEP]"]


@pytest.mark.parametrize("cut", ["llama-bpe", "llama3"])
def test_llama_3_begins_a_text_where_no_field_says_so(cut: str) -> None:
    assert tokens_of(BYTE_PAIRS | BEGINS, "hi", pre=cut) == ["<|begin_of_text|>", "h", "i"]
    assert tokens_of(BYTE_PAIRS | BEGINS, "hi", pre=cut, add_bos_token=False) == ["h", "i"]


@pytest.mark.parametrize("cut", ["gpt-2", "qwen2", "smollm"])
def test_other_byte_pairs_begin_a_text_where_a_field_says_so_alone(cut: str) -> None:
    assert tokens_of(BYTE_PAIRS | BEGINS, "hi", pre=cut) == ["h", "i"]
    assert tokens_of(BYTE_PAIRS | BEGINS, "hi", pre=cut, add_bos_token=True) == ["<|begin_of_text|>", "h", "i"]


def test_a_token_that_no_field_names_is_told_as_the_file_has_it() -> None:
    with pytest.raises(UserError, match="bos_token_id is missing, and add_bos_token is set"):
        tokens_of(BYTE_PAIRS, "hi", pre="qwen2", add_bos_token=True)
    with pytest.raises(UserError, match="bos_token_id is missing, and a tokenizer of this kind puts that token"):
        tokens_of(BYTE_PAIRS, "hi", pre="llama-bpe")
