"""BERT as llama.cpp has it, which RoBERTa, XLM-RoBERTa and DistilBERT are too once positions count from 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings
from jdistill.core.types import Tree
from jdistill.models.bert.config import ACTIVATIONS, BertConfig, tensor_names
from jdistill.models.conversion import to_tensors
from jdistill.models.gguf_layout import GgufKind, GgufModel, renamed

_GELUS = (
    "gelu",
    "gelu_new",
    "gelu_pytorch_tanh",
)  # llama.cpp computes the last, which differs from the first by 5e-4 at most
_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "encoder.layer.{i}.attention.self.query": "blk.{i}.attn_q",
    "encoder.layer.{i}.attention.self.key": "blk.{i}.attn_k",
    "encoder.layer.{i}.attention.self.value": "blk.{i}.attn_v",
    "encoder.layer.{i}.attention.output.dense": "blk.{i}.attn_output",
    "encoder.layer.{i}.attention.output.LayerNorm": "blk.{i}.attn_output_norm",
    "encoder.layer.{i}.intermediate.dense": "blk.{i}.ffn_up",
    "encoder.layer.{i}.output.dense": "blk.{i}.ffn_down",
    "encoder.layer.{i}.output.LayerNorm": "blk.{i}.layer_output_norm",
}
_TYPES = "embeddings.token_type_embeddings.weight"
_TYPES_KEY = "tokenizer.ggml.token_type_count"


def to_gguf(config: BertConfig, params: Tree) -> GgufModel:
    """The model as llama.cpp's `bert`. Raises UserError for ELECTRA's narrow table, and for an activation that is no GELU."""
    if config.embedding_size != config.hidden_size:
        raise UserError(
            f"GGUF: the student's token embeddings are {config.embedding_size} wide and its layers {config.hidden_size} (ELECTRA's "
            "layout), which llama.cpp cannot read, nor has BERT the same function; train a student of whole layers "
            "(--config.student.embedding_size=0; of an ELECTRA's narrow table with --config.student.start=random), or serve this one by "
            "ONNX Runtime or sentence-transformers"
        )
    if config.activation not in _GELUS:
        raise UserError(f"GGUF: the activation is {config.activation}; llama.cpp's BERT has {', '.join(_GELUS)} alone")
    plain = replace(config, model_type="bert", max_positions=config.usable_positions)
    block = params["embeddings"]
    positions = block["position"]["embedding"][config.position_offset :]
    params = {**params, "embeddings": {**block, "position": {"embedding": positions}}}
    return GgufModel("bert", fields_of(plain, "bert"), renamed(to_tensors(tensor_names(plain), params), _NAMES))


def fields_of(config: BertConfig, kind: str) -> dict:
    """The fields that BERT and its relatives share."""
    fields = {
        "block_count": config.num_layers,
        "context_length": config.max_positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "attention.causal": False,
        "hidden_activation": config.activation,
    }
    return {f"{kind}.{name}": value for name, value in fields.items()} | {_TYPES_KEY: max(1, config.type_vocab_size)}


def read_bert(fields: Settings, tensors: dict[str, np.ndarray]) -> tuple[BertConfig, dict[str, np.ndarray]]:
    """As GgufKind.read, of `bert`. What has no token types, as DistilBERT, gets a single one of zeros: no other library has a BERT without."""
    if _TYPES not in tensors:
        table_VxD = tensors["embeddings.word_embeddings.weight"]
        tensors = {**tensors, _TYPES: np.zeros((1, table_VxD.shape[1]), np.float32)}
    return numbers_of_gguf(fields, "bert", tensors, tuple(ACTIVATIONS)), tensors


def numbers_of_gguf(
    fields: Settings, kind: str, tensors: dict[str, np.ndarray], activations: tuple[str, ...]
) -> BertConfig:
    """The sizes by the fields of fields_of. activations: that the architecture may have, the usual one first."""
    hidden = fields.integer(f"{kind}.embedding_length", 1)
    heads = fields.integer(key := f"{kind}.attention.head_count", 1)
    if hidden % heads:
        raise fields.fault(key, f"is {heads}, which does not divide the width {hidden}")
    types = tensors.get(_TYPES)
    return BertConfig(
        model_type="bert",
        vocab_size=len(tensors["embeddings.word_embeddings.weight"]),
        embedding_size=hidden,
        hidden_size=hidden,
        num_layers=fields.integer(f"{kind}.block_count", 1),
        num_heads=heads,
        intermediate_size=fields.integer(f"{kind}.feed_forward_length", 1),
        max_positions=fields.integer(f"{kind}.context_length", 1),
        type_vocab_size=0 if types is None else len(types),
        layer_norm_eps=fields.number(f"{kind}.attention.layer_norm_epsilon", 0.0, 1.0),
        activation=fields.text(f"{kind}.hidden_activation", activations[0], among=activations),
        pad_token_id=fields.integer("tokenizer.ggml.padding_token_id", 0, default=0),
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )


GGUF_BERT = GgufKind("bert", _NAMES, read_bert)
