"""ModernBERT as llama.cpp has it: no biases, GeGLU, and of each layer whether it is local."""

from __future__ import annotations

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings, said
from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.models.conversion import to_tensors
from jdistill.models.gguf_layout import GgufKind, GgufModel, renamed
from jdistill.models.modernbert.config import EVERY, GLOBAL, LOCAL, ModernBertConfig, by_turns, tensor_names, turns_of
from jdistill.models.rotary import WIDEST_HEAD

_KIND, _ACTIVATION = "modern-bert", "gelu"
_PATTERN = f"{_KIND}.attention.sliding_window_pattern"
_NAMES = {
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.norm": "token_embd_norm",
    "layers.{i}.attn_norm": "blk.{i}.attn_norm",
    "layers.{i}.attn.Wqkv": "blk.{i}.attn_qkv",
    "layers.{i}.attn.Wo": "blk.{i}.attn_output",
    "layers.{i}.mlp_norm": "blk.{i}.ffn_norm",
    "layers.{i}.mlp.Wi": "blk.{i}.ffn_up",
    "layers.{i}.mlp.Wo": "blk.{i}.ffn_down",
    "final_norm": "output_norm",
}


def to_gguf(config: ModernBertConfig, params: Tree) -> GgufModel:
    """The model as llama.cpp has it. Raises UserError for biases, and for an activation but GELU."""
    if config.attention_bias or config.mlp_bias or config.norm_bias:
        raise UserError("GGUF: the student's layers have biases, which llama.cpp's ModernBERT has not")
    if config.activation != _ACTIVATION:
        raise UserError(f"GGUF: the activation is {config.activation}; written for ModernBERT is {_ACTIVATION} alone")
    turns = turns_of(config.layer_types)
    if not turns:
        log.warning(
            "WARNING: GGUF: the student's global layers do not come by turns, and are written as a list: llama.cpp reads it from the version "
            "that knows a list of sliding_window_pattern for modern-bert; older ones compute other vectors without a word"
        )
    fields = {
        "block_count": config.num_layers,
        "context_length": config.max_positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": config.num_heads,
        "attention.layer_norm_epsilon": config.norm_eps,
        "attention.causal": False,
        "attention.sliding_window": config.local_attention,
        "attention.sliding_window_pattern": turns or [kind == LOCAL for kind in config.layer_types],
        "rope.freq_base": config.global_theta,
        "rope.freq_base_swa": config.local_theta,
    }
    named = {f"{_KIND}.{name}": value for name, value in fields.items()}
    return GgufModel(_KIND, named, renamed(to_tensors(tensor_names(config), params), _NAMES))


def read_modern(fields: Settings, tensors: dict[str, np.ndarray]) -> tuple[ModernBertConfig, dict[str, np.ndarray]]:
    """As GgufKind.read."""
    hidden, layers = fields.integer(f"{_KIND}.embedding_length", 1), fields.integer(f"{_KIND}.block_count", 1)
    heads = fields.integer(key := f"{_KIND}.attention.head_count", 1)
    if hidden % heads or hidden // heads % 2 or hidden // heads > WIDEST_HEAD:
        raise fields.fault(key, f"is {heads}, which does not divide the width {hidden} into heads of an even width")
    theta = fields.number(f"{_KIND}.rope.freq_base", 1.0, 1e12)
    return ModernBertConfig(
        vocab_size=len(tensors["embeddings.tok_embeddings.weight"]),
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=fields.integer(f"{_KIND}.feed_forward_length", 1),
        max_positions=fields.integer(f"{_KIND}.context_length", 1),
        layer_types=_layer_types(fields, layers),
        local_attention=fields.integer(f"{_KIND}.attention.sliding_window", 2),
        global_theta=theta,
        local_theta=fields.number(f"{_KIND}.rope.freq_base_swa", 1.0, 1e12, default=theta),
        norm_eps=fields.number(f"{_KIND}.attention.layer_norm_epsilon", 0.0, 1.0),
        activation=fields.text(f"{_KIND}.hidden_activation", _ACTIVATION, among=(_ACTIVATION,)),
        attention_bias=False,
        mlp_bias=False,
        norm_bias=False,
        pad_token_id=fields.integer("tokenizer.ggml.padding_token_id", 0, default=-1),
    ), tensors


def _layer_types(fields: Settings, layers: int) -> tuple[str, ...]:
    """What each layer's tokens see: of a list whether it is local, or a number: every so many is global."""
    pattern = fields.raw(_PATTERN, EVERY)
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0:
        return by_turns(layers, pattern)
    if not isinstance(pattern, list) or len(pattern) != layers or not all(isinstance(x, bool) for x in pattern):
        raise fields.fault(_PATTERN, f"is {said(pattern)}; true or false for each of {layers} layers is needed")
    return tuple(LOCAL if local else GLOBAL for local in pattern)


GGUF_MODERN_BERT = GgufKind(_KIND, _NAMES, read_modern)
