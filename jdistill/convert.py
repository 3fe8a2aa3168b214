"""Weights between Hugging Face's names and Flax paths, both ways: one table per architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError
from safetensors.numpy import load_file

from jdistill import convert_decoder
from jdistill.errors import UserError
from jdistill.models.bert import ACTIVATIONS, BertConfig
from jdistill.models.decoder import DecoderConfig
from jdistill.models.model import TransformerConfig

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


def names_of(config: TransformerConfig) -> dict[str, tuple[str, bool]]:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter of this architecture."""
    if isinstance(config, DecoderConfig):
        return convert_decoder.names(config)
    names: dict[str, tuple[str, bool]] = {}
    for path, name in TABLES[config.model_type].items():
        if path == "project" and config.embedding_size == config.hidden_size:
            continue
        if path.startswith("embeddings/type") and not config.type_vocab_size:
            continue
        for i in range(config.num_layers) if "{i}" in path else (0,):
            flax, torch = path.replace("{i}", str(i)), name.replace("{i}", str(i))
            if flax.endswith("/embedding"):
                names[flax] = (torch, False)
            elif flax.endswith("norm"):
                names[f"{flax}/scale"], names[f"{flax}/bias"] = (f"{torch}.weight", False), (f"{torch}.bias", False)
            else:
                names[f"{flax}/kernel"], names[f"{flax}/bias"] = (f"{torch}.weight", True), (f"{torch}.bias", False)
    return names


def read_config(folder: Path) -> TransformerConfig:
    """The architecture that a Hugging Face folder's config.json describes; UserError if it is not one of ours."""
    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder} has no config.json, so it is not a Hugging Face model folder")
    try:
        hf = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None
    kind = hf.get("model_type", "")
    if kind in convert_decoder.TYPES:
        return convert_decoder.read_config(hf, path)
    if kind not in TABLES:
        raise UserError(
            f"{path}: model_type is {kind!r}; jdistill reads {', '.join(sorted((*TABLES, *convert_decoder.TYPES)))}. "
            "Any other model can teach through st:SOURCE (torch extra) or vectors:FILE"
        )
    if hf.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(
            f"{path}: position_embedding_type {hf['position_embedding_type']!r} is not supported, only 'absolute'"
        )
    distil = kind == "distilbert"
    activation = hf.get("activation" if distil else "hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(f"{path}: activation {activation!r} is not supported, only {', '.join(ACTIVATIONS)}")
    hidden = hf["dim" if distil else "hidden_size"]
    return BertConfig(
        model_type=kind,
        vocab_size=hf["vocab_size"],
        embedding_size=hf.get("embedding_size", hidden) if kind == "electra" else hidden,
        hidden_size=hidden,
        num_layers=hf["n_layers" if distil else "num_hidden_layers"],
        num_heads=hf["n_heads" if distil else "num_attention_heads"],
        intermediate_size=hf["hidden_dim" if distil else "intermediate_size"],
        max_positions=hf.get("max_position_embeddings", 512),
        type_vocab_size=0 if distil else hf.get("type_vocab_size", 2),
        layer_norm_eps=1e-12 if distil else hf.get("layer_norm_eps", 1e-12),
        activation=activation,
        pad_token_id=hf["pad_token_id"] if hf.get("pad_token_id") is not None else int(kind == "roberta"),
        hidden_dropout=hf.get("dropout" if distil else "hidden_dropout_prob", 0.1),
        attention_dropout=hf.get("attention_dropout" if distil else "attention_probs_dropout_prob", 0.1),
    )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    """The content of config.json for transformers; the inverse of read_config."""
    if isinstance(config, DecoderConfig):
        return convert_decoder.write_config(config)
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


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a folder's safetensors, shards included, as float32; UserError on a missing or truncated file."""
    index = folder / "model.safetensors.index.json"
    files = (
        sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.is_file() else ["model.safetensors"]
    )
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        path = folder / file
        if not path.is_file():
            hint = (
                " (a pytorch_model.bin alone is not read: save it again with safetensors)"
                if list(folder.glob("*.bin"))
                else ""
            )
            raise UserError(f"{path} is missing{hint}")
        try:
            tensors.update(load_file(path))
        except (SafetensorError, ValueError, OSError) as error:
            raise UserError(
                f"{path} cannot be read ({error}); it is truncated or not a safetensors file: fetch it again"
            ) from None
    return {
        name: np.asarray(tensor, np.float32)
        for name, tensor in tensors.items()
        if tensor.dtype.kind in "fV" or "bf" in str(tensor.dtype)
    }


def from_hf(config: TransformerConfig, tensors: dict[str, np.ndarray], where: str) -> dict[str, Any]:
    """Flax parameters from Hugging Face tensors (a prefix such as `bert.` and the old gamma/beta names are understood).

    Those of the layers: an output layer that predicts words is left out.

    Raises UserError naming the tensor that is missing or has another shape than config.json says. `where` is for
    messages.
    """
    clean: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        name = name.removeprefix("model." if isinstance(config, DecoderConfig) else f"{config.model_type}.")
        clean[name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")] = tensor
    flat: dict[str, np.ndarray] = {}
    shapes = parameter_shapes(config)
    for path, (name, transpose) in names_of(config).items():
        if name not in clean:
            raise UserError(
                f"{where}: tensor {name} is missing; found {len(clean)} tensors such as {sorted(clean)[:3]}"
            )
        value = clean[name].T if transpose else clean[name]
        if value.shape != shapes[path]:
            raise UserError(
                f"{where}: tensor {name} has shape {clean[name].shape}, but config.json asks for "
                f"{shapes[path][::-1] if transpose else shapes[path]}"
            )
        flat[path] = np.ascontiguousarray(value)
    return unflatten_dict(flat, sep="/")


def to_hf(config: TransformerConfig, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Hugging Face tensors from Flax parameters; the inverse of from_hf, exactly."""
    flat = flatten_dict(params, sep="/")
    names = names_of(config)
    if set(flat) != set(names):
        raise ValueError(f"parameters do not match the architecture: {sorted(set(flat) ^ set(names))[:4]}")
    return {
        name: np.ascontiguousarray(
            np.asarray(flat[path], np.float32).T if transpose else np.asarray(flat[path], np.float32)
        )
        for path, (name, transpose) in names.items()
    }


def parameter_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Flax path -> shape for every parameter of the architecture."""
    if isinstance(config, DecoderConfig):
        return convert_decoder.shapes(config)
    c = config
    shapes: dict[str, tuple[int, ...]] = {}
    widths = {
        "project": (c.embedding_size, c.hidden_size),
        "up": (c.hidden_size, c.intermediate_size),
        "down": (c.intermediate_size, c.hidden_size),
    }
    rows = {"word": c.vocab_size, "position": c.max_positions, "type": c.type_vocab_size}
    for path in names_of(config):
        *_, owner, leaf = path.split("/")
        width = c.embedding_size if path.startswith("embeddings/") else c.hidden_size
        if leaf == "embedding":
            shapes[path] = (rows[owner], width)
        elif owner.endswith("norm"):
            shapes[path] = (width,)
        else:
            rows_of, columns = widths.get(owner, (c.hidden_size, c.hidden_size))
            shapes[path] = (rows_of, columns) if leaf == "kernel" else (columns,)
    return shapes


def count_parameters(config: TransformerConfig, pooler: bool = False) -> int:
    """Parameters of the architecture; with `pooler`, BERT's D x D pooler layer counted too, as the papers' sizes do."""
    extra = config.hidden_size * (config.hidden_size + 1) if pooler else 0
    return sum(int(np.prod(shape)) for shape in parameter_shapes(config).values()) + extra
