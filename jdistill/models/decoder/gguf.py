"""Llama's family as llama.cpp has it: fields and names both ways, and the order of the rows of Llama's queries and keys."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings
from jdistill.core.types import Tree
from jdistill.models.conversion import to_tensors
from jdistill.models.decoder.config import DecoderConfig, checked, tensor_names
from jdistill.models.gguf_layout import GgufKind, GgufModel, renamed

_NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "layers.{i}.input_layernorm": "blk.{i}.attn_norm",
    "layers.{i}.self_attn.q_proj": "blk.{i}.attn_q",
    "layers.{i}.self_attn.k_proj": "blk.{i}.attn_k",
    "layers.{i}.self_attn.v_proj": "blk.{i}.attn_v",
    "layers.{i}.self_attn.q_norm": "blk.{i}.attn_q_norm",
    "layers.{i}.self_attn.k_norm": "blk.{i}.attn_k_norm",
    "layers.{i}.self_attn.o_proj": "blk.{i}.attn_output",
    "layers.{i}.post_attention_layernorm": "blk.{i}.ffn_norm",
    "layers.{i}.mlp.gate_proj": "blk.{i}.ffn_gate",
    "layers.{i}.mlp.up_proj": "blk.{i}.ffn_up",
    "layers.{i}.mlp.down_proj": "blk.{i}.ffn_down",
}
_KINDS = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}  # model_type -> llama.cpp's name


def to_gguf(config: DecoderConfig, params: Tree, max_length: int) -> GgufModel:
    """The model as llama.cpp has it. Raises UserError for what it does not compute, or by a tensor that is not written here."""
    kind = _KINDS.get(config.model_type)
    if kind is None:
        raise UserError(f"GGUF: a {config.model_type} is not written; of decoders {', '.join(_KINDS)} are")
    refused = {
        "RoPE is scaled as in Llama 3.1": config.rope_scaling is not None,
        f"the activation is {config.activation}, not silu": config.activation != "silu",
        f"some layers see {config.sliding_window} tokens alone": any(config.sliding)
        and config.sliding_window < max_length,
        "biases of attention's output are none of Qwen's": config.out_bias and kind != "llama",
        "the feed-forward block has biases": config.mlp_bias and kind != "llama",
    }
    for why, is_so in refused.items():
        if is_so:
            raise UserError(f"GGUF: {why}, which is not written; serve this student by sentence-transformers")
    tensors = to_tensors(tensor_names(config), params)
    if kind == "llama":
        tensors = _each_head(config, tensors, _pairs_together)
    return GgufModel(kind, _fields(config, kind), renamed(tensors, _NAMES))


def _fields(config: DecoderConfig, kind: str) -> dict[str, Any]:
    fields = {
        "block_count": config.num_layers,
        "context_length": config.max_positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_size,
        "attention.value_length": config.head_size,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.causal": config.causal,
        "rope.dimension_count": config.head_size,
        "rope.freq_base": config.rope_theta,
    }
    return {f"{kind}.{name}": value for name, value in fields.items()}


def _each_head(config: DecoderConfig, tensors: dict[str, np.ndarray], order: Any, where: object = "") -> dict[str, Any]:
    """The tensors with the rows of each head of queries and keys in another order."""
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
    out = dict(tensors)
    for name, rows in tensors.items():
        if (count := heads.get(name.split(".")[-2])) is not None:
            if not rows.ndim or len(rows) != count * config.head_size:
                raise UserError(
                    f"{where}: tensor {name} has shape {rows.shape}; {count} heads of width {config.head_size} are needed"
                )
            out[name] = order(rows, count, config.head_size)
    return out


def _pairs_together(rows: np.ndarray, heads: int, head_size: int) -> np.ndarray:
    """Rows of a head as GGUF's Llama orders them: a rotated pair is (k, k + K/2) at Hugging Face and (2k, 2k + 1) there."""
    return _swapped(rows, (heads, 2, head_size // 2))


def _pairs_apart(rows: np.ndarray, heads: int, head_size: int) -> np.ndarray:
    """The inverse of _pairs_together."""
    return _swapped(rows, (heads, head_size // 2, 2))


def _swapped(rows: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    return np.ascontiguousarray(rows.reshape(*shape, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape))


def read_decoder(
    fields: Settings, tensors: dict[str, np.ndarray], kind: str
) -> tuple[DecoderConfig, dict[str, np.ndarray]]:
    """As GgufKind.read, of one of _KINDS."""
    rows = len(tensors["embed_tokens.weight"])
    hidden, heads = (fields.integer(f"{kind}.{key}", 1) for key in ("embedding_length", "attention.head_count"))
    eos = fields.integer("tokenizer.ggml.eos_token_id", 0, rows - 1, default=0)
    config = DecoderConfig(
        model_type=kind,
        vocab_size=rows,
        hidden_size=hidden,
        num_layers=fields.integer(f"{kind}.block_count", 1),
        num_heads=heads,
        num_kv_heads=fields.integer(f"{kind}.attention.head_count_kv", 1, default=heads),
        head_size=fields.integer(f"{kind}.attention.key_length", 1, default=hidden // heads),
        intermediate_size=fields.integer(f"{kind}.feed_forward_length", 1),
        max_positions=fields.integer(f"{kind}.context_length", 1),
        rms_norm_eps=fields.number(f"{kind}.attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope_theta=fields.number(f"{kind}.rope.freq_base", 1.0, 1e12, default=10000.0),
        rope_scaling=None,
        activation="silu",
        qkv_bias="layers.0.self_attn.q_proj.bias" in tensors,
        out_bias="layers.0.self_attn.o_proj.bias" in tensors,
        mlp_bias="layers.0.mlp.up_proj.bias" in tensors,
        qk_norm="layers.0.self_attn.q_norm.weight" in tensors,
        tied="lm_head.weight" not in tensors,
        pad_token_id=fields.integer("tokenizer.ggml.padding_token_id", 0, rows - 1, default=eos),
        causal=fields.flag(f"{kind}.attention.causal", True),
    )
    config = checked(config, fields.path)
    return config, _each_head(config, tensors, _pairs_apart, fields.path) if kind == "llama" else tensors


GGUF_DECODERS = tuple(GgufKind(kind, _NAMES, partial(read_decoder, kind=kind)) for kind in ("llama", "qwen2", "qwen3"))
