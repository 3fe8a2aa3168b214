"""A small random ALBERT with a tokenizer of its class."""

from __future__ import annotations

from conftest import random_params, tiny_config
from transformers import AlbertTokenizer
from unigram_setting import unigram_pieces

from jdistill.encoder.encoder import Encoder
from jdistill.models.albert import AlbertConfig


def tiny_albert_config(**changes: object) -> AlbertConfig:
    """4 layers, 32 wide, which are one, behind token embeddings 16 wide."""
    sizes = {"model_type": "albert", "embedding_size": 16, "activation": "gelu_new"}
    whole = vars(tiny_config(**sizes)) | {"num_groups": 1, "group_layers": 1}
    return AlbertConfig(**(whole | changes))


def albert_tokenizer() -> AlbertTokenizer:
    """Pieces behind ALBERT's special tokens."""
    return AlbertTokenizer(vocab=unigram_pieces(("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")), model_max_length=64)


def make_albert(seed: int = 0, **changes: object) -> Encoder:
    tokenizer = albert_tokenizer()
    config = tiny_albert_config(vocab_size=len(tokenizer), **changes)
    return Encoder(config, random_params(config, seed), tokenizer, normalize=True, max_length=64, source="tiny")
