"""A small random T5 encoder with a tokenizer of its class, and the modules of sentence-t5 and gtr-t5."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import random_params
from transformers import T5Tokenizer
from unigram_setting import unigram_pieces

from jdistill.encoder.encoder import Encoder
from jdistill.models.t5 import T5Config

EXTRA = 10  # of the tokens that stand for a span left out; published vocabularies have 100


def tiny_t5_config(**changes: object) -> T5Config:
    """4 layers, 32 wide, with 4 heads that are together wider than the layers."""
    settings: dict = dict(
        model_type="t5",
        vocab_size=416,
        hidden_size=32,
        num_layers=4,
        num_heads=4,
        head_size=10,
        intermediate_size=64,
        buckets=32,
        farthest=128,
        rms_norm_eps=1e-6,
        activation="relu",
        gated=False,
        pad_token_id=0,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )
    return T5Config(**(settings | changes))


def t5_tokenizer() -> T5Tokenizer:
    """Pieces between T5's special tokens and those of spans left out, as the published ones have them."""
    spans = [(f"<extra_id_{i}>", 0.0) for i in reversed(range(EXTRA))]
    pieces = [*unigram_pieces(("<pad>", "</s>", "<unk>")), *spans]
    return T5Tokenizer(vocab=pieces, extra_ids=EXTRA, model_max_length=64)


def make_t5(seed: int = 0, **changes: object) -> Encoder:
    """A table of more rows than the tokenizer has ids, as T5's is."""
    tokenizer = t5_tokenizer()
    config = tiny_t5_config(vocab_size=len(tokenizer) + 6, **changes)
    return Encoder(config, random_params(config, seed), tokenizer, normalize=True, max_length=64, source="tiny")


def make_sentence_t5(seed: int = 0, **changes: object) -> Encoder:
    """Mean pooling, a projection of the same width without bias and activation, Normalize."""
    kernel = np.random.default_rng(seed).normal(0, 32**-0.5, (32, 32)).astype(np.float32)
    return replace(make_t5(seed, **changes), dense=({"kernel": kernel},), dense_activations=("Identity",))


def torch_t5(folder: Path, decoder: bool = False, **changes: Any) -> Any:
    """A random T5EncoderModel in double precision, saved in float32; its table of distances weighs as much as the scores."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    import transformers

    torch.manual_seed(0)
    sizes = dict(vocab_size=120, d_model=48, d_kv=10, d_ff=96, num_layers=3, num_heads=4)
    config = transformers.T5Config(**(sizes | changes))
    kind = transformers.T5ForConditionalGeneration if decoder else transformers.T5EncoderModel
    model = kind(config).eval()
    for name, parameter in model.named_parameters():
        if "relative" in name or "norm" in name:
            torch.nn.init.normal_(parameter, float("norm" in name), 0.1 if "norm" in name else 1.0)
    model.save_pretrained(folder)
    return model.double()
