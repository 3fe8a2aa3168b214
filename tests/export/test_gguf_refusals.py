"""GGUF: what llama.cpp lacks is refused, and damaged fields are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, tiny_config, tiny_decoder_config
from decoder_setting import gemma_tokenizer
from gguf_setting import bert, decoder, with_tokenizer
from modernbert_setting import make_modernbert
from mpnet_setting import make_mpnet
from nomicbert_setting import make_nomicbert
from tokenizers import AddedToken, pre_tokenizers, processors
from vocabulary_setting import made_up_texts, pairs_within_words, unigram, unigram_over_bytes

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.gguf_writer import write_gguf

pytest.importorskip("gguf", reason="writing GGUF needs the extra [gguf]")


def two_before() -> Encoder:
    model = bert()
    ids = [(token, model.tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    template = processors.TemplateProcessing(single="[CLS] [CLS] $A [SEP]", special_tokens=ids)
    model.tokenizer.backend_tokenizer.post_processor = template
    return model


def cut_otherwise() -> Encoder:
    model = make_modernbert()
    model.tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return model


def twice() -> Encoder:
    model = bert()
    model.tokenizer.add_tokens([AddedToken("\u2581a", normalized=False)])
    return model


DENSE = ({"kernel": np.ones((32, 8), np.float32)},)
REFUSED: dict[str, tuple[Callable[[], Encoder], str]] = {
    "compact": (
        lambda: make_encoder(model_type="electra", embedding_size=12),
        "12 wide and its layers 32 .ELECTRA's layout., which llama.cpp cannot read.*student.embedding_size=0",
    ),
    "mpnet": (make_mpnet, "no architecture for this student .mpnet.*ONNX Runtime"),
    "relu": (lambda: make_encoder(activation="relu"), "activation is relu; llama.cpp's BERT has gelu"),
    "max": (
        lambda: replace(make_encoder(), pooling="max"),
        "llama.cpp has no pooler max, only mean, cls and lasttoken",
    ),
    "two layers": (lambda: replace(make_encoder(), pooling="avg_last2"), "no pooler avg_last2.*--plain"),
    "dense": (
        lambda: replace(make_encoder(), dense=DENSE, dense_activations=("Identity",)),
        "projects its pooled vector .32 to 8 numbers.*EmbeddingGemma alone",
    ),
    "prompt left out": (
        lambda: replace(make_encoder(), prompts={"query": "q: "}, include_prompt=False),
        "leaves the prompt's tokens out",
    ),
    "gemma": (
        lambda: with_tokenizer(tiny_decoder_config, gemma_tokenizer(), model_type="gemma3_text"),
        "gemma3_text is not",
    ),
    "rope": (lambda: make_decoder(rope_scaling=(8.0, 1.0, 4.0, 32)), "RoPE is scaled as in Llama 3.1"),
    "window": (lambda: make_decoder(sliding=(True, False), sliding_window=8), "some layers see 8 tokens alone"),
    "qwen's bias": (lambda: decoder(model_type="qwen3", out_bias=True, qkv_bias=True), "none of Qwen's"),
    "geglu": (lambda: make_nomicbert(activation="gelu"), "activation is gelu; llama.cpp's NomicBERT has silu"),
    "biases": (lambda: make_modernbert(mlp_bias=True), "have biases, which llama.cpp's ModernBERT has not"),
    "two at once": (two_before, "at most one token before and behind a text; here 'a text' becomes .*CLS.*CLS"),
    "cut otherwise": (cut_otherwise, "none of gpt-2, smollm, llama-bpe, llama3, qwen2, modern-bert"),
    "inner mark": (lambda: with_tokenizer(tiny_config, pairs_within_words(made_up_texts(300))), "none of gpt-2"),
    "bytes to fall back on": (
        lambda: with_tokenizer(tiny_config, unigram_over_bytes(made_up_texts(300))),
        "falls back on bytes",
    ),
    "no table": (lambda: with_tokenizer(tiny_config, unigram(made_up_texts(300))), "without sentencepiece's table"),
    "twice": (twice, "has '▁a' twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_lacks_is_refused(name: str, tmp_path: Path) -> None:
    make, fault = REFUSED[name]
    with pytest.raises(UserError, match=f"(?s)^GGUF: .*{fault}"):
        write_gguf(make(), tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_damaged_encodings_and_rerankers_are_refused(tmp_path: Path) -> None:
    path = write_gguf(bert(), tmp_path / "m.gguf")
    good = path.read_bytes()
    number = good.index(b"bert.pooling_type") + len("bert.pooling_type") + 4
    length = b'"max_length": 60'
    for damaged, fault in (
        (good[:number] + b"\4" + good[number + 1 :], "bert.pooling_type is 4, as of a reranker"),
        (good.replace(length, b'"max_length": -1'), "max_length is -1"),
        (good.replace(length, b'"max_length": 6,'), "jdistill.encoding: not valid JSON"),
        (good.replace(b'"normalize": true', b'"normalize": 1234'), "normalize is 1234; true or false"),
    ):
        assert damaged != good
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=fault):
            jdistill.load(str(path))
