"""NomicBERT as llama.cpp has it."""

from __future__ import annotations

from dataclasses import fields as fields_of_class

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings
from jdistill.core.types import Tree
from jdistill.models.bert.gguf import fields_of, numbers_of_gguf
from jdistill.models.conversion import to_tensors
from jdistill.models.gguf_layout import GgufKind, GgufModel, renamed
from jdistill.models.nomicbert.config import NomicBertConfig, tensor_names
from jdistill.models.rotary import WIDEST_HEAD

_KIND, _ACTIVATION = "nomic-bert", "silu"
_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "emb_ln": "token_embd_norm",
    "encoder.layers.{i}.attn.Wqkv": "blk.{i}.attn_qkv",
    "encoder.layers.{i}.attn.out_proj": "blk.{i}.attn_output",
    "encoder.layers.{i}.norm1": "blk.{i}.attn_output_norm",
    "encoder.layers.{i}.mlp.fc11": "blk.{i}.ffn_up",
    "encoder.layers.{i}.mlp.fc12": "blk.{i}.ffn_gate",
    "encoder.layers.{i}.mlp.fc2": "blk.{i}.ffn_down",
    "encoder.layers.{i}.norm2": "blk.{i}.layer_output_norm",
}


def to_gguf(config: NomicBertConfig, params: Tree) -> GgufModel:
    """The model as llama.cpp has it. Raises UserError for an activation but SwiGLU's."""
    if config.activation != _ACTIVATION:
        raise UserError(f"GGUF: the activation is {config.activation}; llama.cpp's NomicBERT has {_ACTIVATION} alone")
    fields = fields_of(config, _KIND) | {f"{_KIND}.rope.freq_base": config.rope_theta}
    return GgufModel(_KIND, fields, renamed(to_tensors(tensor_names(config), params), _NAMES))


def read_nomic(fields: Settings, tensors: dict[str, np.ndarray]) -> tuple[NomicBertConfig, dict[str, np.ndarray]]:
    """As GgufKind.read."""
    sizes = numbers_of_gguf(fields, _KIND, tensors, (_ACTIVATION,))
    head = sizes.hidden_size // sizes.num_heads
    if head % 2 or head > WIDEST_HEAD:
        raise fields.fault(
            f"{_KIND}.attention.head_count",
            f"is {sizes.num_heads}, which makes heads of width {head}; they are even, for RoPE",
        )
    theta = fields.number(f"{_KIND}.rope.freq_base", 1.0, 1e12, default=10000.0)
    shared = {field.name: getattr(sizes, field.name) for field in fields_of_class(sizes)}
    return NomicBertConfig(**shared | {"model_type": "nomic_bert", "rope_theta": theta}), tensors


GGUF_NOMIC_BERT = GgufKind(_KIND, _NAMES, read_nomic)
