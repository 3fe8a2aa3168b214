"""BERT, RoBERTa, ELECTRA and DistilBERT between Hugging Face and Flax: config.json both ways, and the names of tensors."""

from __future__ import annotations

from typing import Any

from jdistill.core.json_files import Settings
from jdistill.models.bert import ACTIVATIONS, BertConfig

MOST_LAYERS = 10_000  # more than any model has; what a config says is held against its tensors when they are read
# Flax path with {i} for the layer -> Hugging Face name. A Flax "kernel" is the transpose of a torch "weight".
_BERT = {
    "embeddings/word/embedding": "embeddings.word_embeddings.weight",
    "embeddings/position/embedding": "embeddings.position_embeddings.weight",
    "embeddings/type/embedding": "embeddings.token_type_embeddings.weight",
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
    "embeddings/word/embedding": "embeddings.word_embeddings.weight",
    "embeddings/position/embedding": "embeddings.position_embeddings.weight",
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
TABLES = {"bert": _BERT, "roberta": _BERT, "electra": _ELECTRA, "distilbert": _DISTILBERT}
HF_CLASSES = {
    "bert": "BertModel",
    "roberta": "RobertaModel",
    "electra": "ElectraModel",
    "distilbert": "DistilBertModel",
}


def names(config: BertConfig) -> dict[str, tuple[str, bool]]:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter."""
    found: dict[str, tuple[str, bool]] = {}
    for path, name in TABLES[config.model_type].items():
        if path == "project" and config.embedding_size == config.hidden_size:
            continue
        if path.startswith("embeddings/type") and not config.type_vocab_size:
            continue
        for i in range(config.num_layers) if "{i}" in path else (0,):
            flax, torch = path.replace("{i}", str(i)), name.replace("{i}", str(i))
            if flax.endswith("/embedding"):
                found[flax] = (torch, False)
            elif flax.endswith("norm"):
                found[f"{flax}/scale"], found[f"{flax}/bias"] = (f"{torch}.weight", False), (f"{torch}.bias", False)
            else:
                found[f"{flax}/kernel"], found[f"{flax}/bias"] = (f"{torch}.weight", True), (f"{torch}.bias", False)
    return found


def shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Flax path -> shape for every parameter of names()."""
    c = config
    found: dict[str, tuple[int, ...]] = {}
    widths = {
        "project": (c.embedding_size, c.hidden_size),
        "up": (c.hidden_size, c.intermediate_size),
        "down": (c.intermediate_size, c.hidden_size),
    }
    rows = {"word": c.vocab_size, "position": c.max_positions, "type": c.type_vocab_size}
    for path in names(config):
        *_, owner, leaf = path.split("/")
        width = c.embedding_size if path.startswith("embeddings/") else c.hidden_size
        if leaf == "embedding":
            found[path] = (rows[owner], width)
        elif owner.endswith("norm"):
            found[path] = (width,)
        else:
            rows_of, columns = widths.get(owner, (c.hidden_size, c.hidden_size))
            found[path] = (rows_of, columns) if leaf == "kernel" else (columns,)
    return found


def read_config(hf: Settings) -> BertConfig:
    """The architecture of a config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
    kind = hf.text("model_type", among=tuple(TABLES))
    hf.text("position_embedding_type", "absolute", among=("absolute",))
    distil = kind == "distilbert"
    hidden = hf.integer("dim" if distil else "hidden_size", 1)
    heads = hf.integer(key := "n_heads" if distil else "num_attention_heads", 1)
    if hidden % heads:
        raise hf.fault(key, f"is {heads}, which does not divide the width {hidden}")
    vocabulary = hf.integer("vocab_size", 1)
    # What stands in padding is never looked at, but RoBERTa counts its positions from this number.
    pad = hf.integer("pad_token_id", 0, vocabulary - 1, default=int(kind == "roberta"))
    positions = hf.integer("max_position_embeddings", 1, default=512)
    if kind == "roberta" and positions <= pad + 1:
        raise hf.fault("max_position_embeddings", f"is {positions}, of which RoBERTa uses none up to pad_token_id + 1")
    return BertConfig(
        model_type=kind,
        vocab_size=vocabulary,
        embedding_size=hf.integer("embedding_size", 1, default=hidden) if kind == "electra" else hidden,
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
    c = config
    hf: dict[str, Any] = {
        "model_type": c.model_type,
        "architectures": [HF_CLASSES[c.model_type]],
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
    }
