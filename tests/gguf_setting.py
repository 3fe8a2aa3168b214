"""Small random students of every layout that llama.cpp has, and texts that their tokenizers tell apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from conftest import make_encoder, random_params, sentences, tiny_config, tiny_decoder_config
from decoder_setting import qwen_tokenizer
from modernbert_setting import make_modernbert
from nomicbert_setting import make_nomicbert
from tokenizers import normalizers, processors
from transformers import PreTrainedTokenizerFast
from vocabulary_setting import made_up_texts, roberta, unigram, word_pieces

from jdistill.encoder.encoder import Encoder

TEXTS = [
    *sentences(12),
    *made_up_texts(12),
    "A man's 123 dogs, café — naïve!",
    "  two  spaces\n\nnew 3.14159 ",
    "straße, 北京 and 東京; КНИГА Ünïted",
    "x",
]


def with_tokenizer(config: Callable, tokenizer: object, **changes: object) -> Encoder:
    """A random model of a tiny config, with the sizes that a tokenizer asks for."""
    sizes = {"vocab_size": len(tokenizer) + 3, "pad_token_id": tokenizer.pad_token_id}  # type: ignore[arg-type, attr-defined]
    config = config(**sizes | {"num_layers": 2} | changes)
    return Encoder(config, random_params(config), tokenizer, normalize=True, max_length=60)  # type: ignore[arg-type]


def bert(lowercase: bool = True, **changes: object) -> Encoder:
    """A BERT with few word pieces."""
    tokenizer = word_pieces([*sentences(60), *made_up_texts(60)])
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    return with_tokenizer(tiny_config, tokenizer, **changes)


def spaces_table() -> bytes:
    """sentencepiece's table of characters that turns a tab and a newline into a space, as its own does: a double array, then the text."""
    units = np.zeros(1024, "<u4")
    units[0] = 256 << 10  # the first byte's unit stands at 256 ^ byte
    for byte in b"\t\n":
        units[256 ^ byte] = (
            (512 << 10) | (1 << 8) | byte
        )  # a word ends here; where its text begins stands at 512 ^ that place
        units[512 ^ 256 ^ byte] = 1 << 31
    return len(units.tobytes()).to_bytes(4, "little") + units.tobytes() + b" \0"


def xlm_roberta() -> Encoder:
    tokenizer = unigram(made_up_texts(300))
    tokenizer.backend_tokenizer.normalizer = normalizers.Precompiled(spaces_table())
    return with_tokenizer(tiny_config, tokenizer, model_type="xlm-roberta")


def decoder(**changes: object) -> Encoder:
    return with_tokenizer(tiny_decoder_config, qwen_tokenizer(), **changes)


def byte_pairs_alone() -> PreTrainedTokenizerFast:
    """Qwen's tokenizer without a special token about a text."""
    tokenizer = qwen_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


MODELS: dict[str, Callable[[], Encoder]] = {
    "bert": lambda: make_encoder(num_layers=2),
    "bert, cls": lambda: replace(bert(activation="gelu_new"), pooling="cls", normalize=False),
    "bert, cased": lambda: bert(lowercase=False),
    "distilbert": lambda: bert(model_type="distilbert", type_vocab_size=0),
    "electra of one width": lambda: bert(model_type="electra"),
    "roberta": lambda: with_tokenizer(
        tiny_config, roberta(made_up_texts(300)), model_type="roberta", type_vocab_size=1
    ),
    "xlm-roberta": xlm_roberta,
    "nomic": lambda: make_nomicbert(num_layers=2),
    "modernbert": make_modernbert,
    "llama": lambda: replace(decoder(), pooling="lasttoken"),
    "mistral": lambda: decoder(model_type="mistral", sliding=(True, True), sliding_window=60),
    "qwen2": lambda: decoder(model_type="qwen2", qkv_bias=True),
    "qwen3": lambda: replace(decoder(model_type="qwen3", qk_norm=True, head_size=16), pooling="lasttoken"),
    "both ways": lambda: decoder(causal=False, out_bias=True, qkv_bias=True, mlp_bias=True),
}
