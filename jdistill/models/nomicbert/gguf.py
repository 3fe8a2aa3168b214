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

KIND, ACTIVATION = "nomic-bert", "silu"
NAMES = {
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
    if config.activation != ACTIVATION:
        raise UserError(f"GGUF: the activation is {config.activation}; llama.cpp's NomicBERT has {ACTIVATION} alone")
    fields = fields_of(config, KIND) | {f"{KIND}.rope.freq_base": config.rope_theta}
    return GgufModel(KIND, fields, renamed(to_tensors(tensor_names(config), params), NAMES))


def read_nomic(fields: Settings, tensors: dict[str, np.ndarray]) -> tuple[NomicBertConfig, dict[str, np.ndarray]]:
    """As GgufKind.read."""
    sizes = numbers_of_gguf(fields, KIND, tensors, (ACTIVATION,))
    theta = fields.number(f"{KIND}.rope.freq_base", 1.0, 1e12, default=10000.0)
    shared = {field.name: getattr(sizes, field.name) for field in fields_of_class(sizes)}
    return NomicBertConfig(**shared | {"model_type": "nomic_bert", "rope_theta": theta}), tensors


NOMIC_BERT = GgufKind(KIND, NAMES, read_nomic)
