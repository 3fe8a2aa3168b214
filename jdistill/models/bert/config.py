"""An encoder's sizes, and config.json and the names of tensors of BERT, RoBERTa, XLM-RoBERTa, ELECTRA and DistilBERT, both ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jdistill.core.json_files import Settings
from jdistill.core.types import Array
from jdistill.models.conversion import MOST_LAYERS, Names, names_by_table


def _in_float32(activation: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The activation computed in float32 and rounded once: of a 16-bit type XLA's CPU rounds every operation, forward
    and backward, which for GELU is some two times as slow."""
    return lambda x: activation(x.astype(jnp.float32)).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    # By erf, which is cheaper on CPU than the erfc that nn.gelu goes through.
    "gelu": _in_float32(lambda x: 0.5 * x * (1.0 + jax.lax.erf(x * 0.5**0.5))),
    "gelu_new": _in_float32(partial(nn.gelu, approximate=True)),
    "gelu_pytorch_tanh": _in_float32(partial(nn.gelu, approximate=True)),
    "relu": nn.relu,
    "silu": _in_float32(nn.silu),
}
ELECTRA_EMBEDDING = 128  # where a file lacks the key, as transformers has it
ROBERTAS = (
    "roberta",
    "xlm-roberta",
)  # which count positions from the padding token, and differ in their tokenizers alone


@dataclass(frozen=True)
class BertConfig:
    """The sizes of an encoder; hashable, so that it can be a static argument of jit."""

    model_type: str  # a key of TABLES: decides names on disk and the three facts below
    vocab_size: int
    embedding_size: int  # E; differs from hidden_size only where a projection follows the embedding block (ELECTRA)
    hidden_size: int  # D
    num_layers: int
    num_heads: int
    intermediate_size: int  # F
    max_positions: int  # rows of the position table, RoBERTa's unused first rows included
    type_vocab_size: int  # 0: no type embeddings (DistilBERT)
    layer_norm_eps: float
    activation: str
    pad_token_id: int
    hidden_dropout: float
    attention_dropout: float

    @property
    def position_offset(self) -> int:
        """The position of the first token: RoBERTa counts from padding_idx + 1, the others from 0."""
        return self.pad_token_id + 1 if self.model_type in ROBERTAS else 0

    @property
    def causal(self) -> bool:
        return False

    @property
    def usable_positions(self) -> int:
        """The longest sequence, in tokens, that the position table can hold."""
        return self.max_positions - self.position_offset


# As conversion.names_by_table reads them.
_BERT = {
    "embeddings/word/embedding": "embeddings.word_embeddings",
    "embeddings/position/embedding": "embeddings.position_embeddings",
    "embeddings/type/embedding": "embeddings.token_type_embeddings",
    "embeddings/norm": "embeddings.LayerNorm",
    "layer_{i}/attention/query": "encoder.layer.{i}.attention.self.query",
    "layer_{i}/attention/key": "encoder.layer.{i}.attention.self.key",
    "layer_{i}/attention/value": "encoder.layer.{i}.attention.self.value",
    "layer_{i}/attention/out": "encoder.layer.{i}.attention.output.dense",
    "layer_{i}/attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "layer_{i}/up": "encoder.layer.{i}.intermediate.dense",
    "layer_{i}/down": "encoder.layer.{i}.output.dense",
    "layer_{i}/output_norm": "encoder.layer.{i}.output.LayerNorm",
}
_ELECTRA = _BERT | {"project": "embeddings_project"}
_DISTILBERT = {
    "embeddings/word/embedding": "embeddings.word_embeddings",
    "embeddings/position/embedding": "embeddings.position_embeddings",
    "embeddings/norm": "embeddings.LayerNorm",
    "layer_{i}/attention/query": "transformer.layer.{i}.attention.q_lin",
    "layer_{i}/attention/key": "transformer.layer.{i}.attention.k_lin",
    "layer_{i}/attention/value": "transformer.layer.{i}.attention.v_lin",
    "layer_{i}/attention/out": "transformer.layer.{i}.attention.out_lin",
    "layer_{i}/attention_norm": "transformer.layer.{i}.sa_layer_norm",
    "layer_{i}/up": "transformer.layer.{i}.ffn.lin1",
    "layer_{i}/down": "transformer.layer.{i}.ffn.lin2",
    "layer_{i}/output_norm": "transformer.layer.{i}.output_layer_norm",
}
TABLES = {"bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "electra": _ELECTRA, "distilbert": _DISTILBERT}
HF_CLASSES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
    "electra": "ElectraModel",
    "distilbert": "DistilBertModel",
}


def prefix_of(model_type: str) -> str:
    """What may stand before the tensors' names, as a model with a head on it has them."""
    return "roberta." if model_type in ROBERTAS else f"{model_type}."


def tensor_names(config: BertConfig) -> Names:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter."""
    left_out = [] if config.type_vocab_size else ["embeddings/type/embedding"]
    if config.embedding_size == config.hidden_size:
        left_out.append("project")
    table = {path: name for path, name in TABLES[config.model_type].items() if path not in left_out}
    return names_by_table(table, config.num_layers)


def read_config(hf: Settings) -> BertConfig:
    """The architecture of a config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
    kind = hf.text("model_type", among=tuple(TABLES))
    if kind != "distilbert" and hf.flag("is_decoder", False) and hf.flag("is_causal", True):
        raise hf.fault("is_decoder", f"is true: such a {kind} reads left to right, which is not computed here")
    return numbers_of(hf, kind)


def numbers_of(hf: Settings, kind: str) -> BertConfig:
    """The sizes, by the keys that a model type has for them. Raises UserError as read_config."""
    hf.text("position_embedding_type", "absolute", among=("absolute",))
    distil = kind == "distilbert"
    hidden = hf.integer("dim" if distil else "hidden_size", 1)
    heads = hf.integer(key := "n_heads" if distil else "num_attention_heads", 1)
    if hidden % heads:
        raise hf.fault(key, f"is {heads}, which does not divide the width {hidden}")
    vocabulary = hf.integer("vocab_size", 1)
    # What stands in padding is never looked at, but RoBERTa counts its positions from this number.
    pad = hf.integer("pad_token_id", 0, vocabulary - 1, default=int(kind in ROBERTAS))
    positions = hf.integer("max_position_embeddings", 1, default=512)
    if kind in ROBERTAS and positions <= pad + 1:
        raise hf.fault("max_position_embeddings", f"is {positions}, of which RoBERTa uses none up to pad_token_id + 1")
    return BertConfig(
        model_type=kind,
        vocab_size=vocabulary,
        embedding_size=hf.integer("embedding_size", 1, default=ELECTRA_EMBEDDING) if kind == "electra" else hidden,
        hidden_size=hidden,
        num_layers=hf.integer("n_layers" if distil else "num_hidden_layers", 1, MOST_LAYERS),
        num_heads=heads,
        intermediate_size=hf.integer("hidden_dim" if distil else "intermediate_size", 1),
        max_positions=positions,
        type_vocab_size=0 if distil else hf.integer("type_vocab_size", 0, default=2),
        layer_norm_eps=1e-12 if distil else hf.number("layer_norm_eps", 0.0, 1.0, default=1e-12),
        activation=hf.text("activation" if distil else "hidden_act", "gelu", among=tuple(ACTIVATIONS)),
        pad_token_id=pad,
        hidden_dropout=hf.number("dropout" if distil else "hidden_dropout_prob", 0.0, 1.0, default=0.1),
        attention_dropout=hf.number(
            "attention_dropout" if distil else "attention_probs_dropout_prob", 0.0, 1.0, default=0.1
        ),
    )


def write_config(config: BertConfig) -> dict[str, Any]:
    """The content of config.json for transformers; the inverse of read_config."""
    return config_keys_of(config, HF_CLASSES[config.model_type])


def config_keys_of(config: BertConfig, name: str) -> dict[str, Any]:
    """The content of config.json of a model whose class in transformers has this name."""
    c = config
    hf: dict[str, Any] = {
        "model_type": c.model_type,
        "architectures": [name],
        "dtype": "float32",
        "vocab_size": c.vocab_size,
        "max_position_embeddings": c.max_positions,
        "pad_token_id": c.pad_token_id,
    }
    if c.model_type == "distilbert":
        return hf | {
            "dim": c.hidden_size,
            "n_layers": c.num_layers,
            "n_heads": c.num_heads,
            "hidden_dim": c.intermediate_size,
            "activation": c.activation,
            "dropout": c.hidden_dropout,
            "attention_dropout": c.attention_dropout,
        }
    if c.model_type == "electra":
        hf["embedding_size"] = c.embedding_size
    return hf | {
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.intermediate_size,
        "hidden_act": c.activation,
        "hidden_dropout_prob": c.hidden_dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "type_vocab_size": c.type_vocab_size,
        "layer_norm_eps": c.layer_norm_eps,
        "initializer_range": 0.02,  # text-embeddings-inference loads no model without it
    }
