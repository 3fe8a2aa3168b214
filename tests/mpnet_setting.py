"""A small random MPNet with a tokenizer of its class."""

from __future__ import annotations

import json

from conftest import random_params, real_teacher_folder
from transformers import MPNetTokenizer

from jdistill.encoder.encoder import Encoder
from jdistill.models.mpnet import MpnetConfig


def tiny_mpnet_config(**changes: object) -> MpnetConfig:
    """4 layers, 32 wide, with room for MiniLM's word pieces behind MPNet's own four."""
    settings: dict = dict(
        model_type="mpnet",
        vocab_size=30527,
        embedding_size=32,
        hidden_size=32,
        num_layers=4,
        num_heads=4,
        intermediate_size=64,
        max_positions=130,
        type_vocab_size=0,
        layer_norm_eps=1e-12,
        activation="gelu",
        pad_token_id=1,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        buckets=32,
    )
    return MpnetConfig(**(settings | changes))


def mpnet_tokenizer() -> MPNetTokenizer:
    """MiniLM's word pieces, which MPNet has too, behind MPNet's special tokens."""
    pieces = json.loads((real_teacher_folder() / "tokenizer.json").read_text())["model"]["vocab"]
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3} | {word: i + 4 for word, i in pieces.items()}
    return MPNetTokenizer(vocab=vocabulary | {"<mask>": len(vocabulary)}, unk_token="<unk>", model_max_length=128)


def make_mpnet(seed: int = 0, **changes: object) -> Encoder:
    config = tiny_mpnet_config(**changes)
    params = random_params(config, seed)
    return Encoder(config, params, mpnet_tokenizer(), normalize=True, max_length=config.usable_positions, source="tiny")
