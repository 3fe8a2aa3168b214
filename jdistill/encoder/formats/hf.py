"""Weights between Hugging Face's names and Flax paths, both ways: one table per family of architectures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings
from jdistill.encoder.formats import hf_bert, hf_decoder
from jdistill.encoder.formats import tensors as tensor_files
from jdistill.models.decoder import DecoderConfig
from jdistill.models.registry import TransformerConfig

_LAYER = re.compile(r"(?:^|\.)layers?\.(\d{1,9})\.")


def names_of(config: TransformerConfig) -> dict[str, tuple[str, bool]]:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter of this architecture."""
    if isinstance(config, DecoderConfig):
        return hf_decoder.names(config)
    return hf_bert.names(config)


def read_config(folder: Path) -> TransformerConfig:
    """The architecture that a Hugging Face folder's config.json describes.

    Raises UserError if it is not one of ours, and naming the key that is missing, of another type or out of its range.
    """
    path = folder / "config.json"
    if not path.exists() and not path.is_symlink():
        raise UserError(f"{folder} has no config.json, so it is not a Hugging Face model folder")
    hf = read_settings(path)
    kind = hf.text("model_type", "")
    if kind in hf_decoder.TYPES:
        return hf_decoder.read_config(hf)
    if kind in hf_bert.TABLES:
        return hf_bert.read_config(hf)
    raise UserError(
        f"{path}: model_type is {kind[:60]!r}; jdistill reads {', '.join(sorted((*hf_bert.TABLES, *hf_decoder.TYPES)))}. "
        "Any other model can teach through st:SOURCE (torch extra) or vectors:FILE"
    )


def write_config(config: TransformerConfig) -> dict[str, Any]:
    """The content of config.json for transformers; the inverse of read_config."""
    return hf_decoder.write_config(config) if isinstance(config, DecoderConfig) else hf_bert.write_config(config)


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a folder's safetensors, shards included, as float32; UserError on a missing or truncated file."""
    return tensor_files.read_tensors(folder)


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
    _check_layers(config, clean, where)
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


def _check_layers(config: TransformerConfig, tensors: dict[str, np.ndarray], where: str) -> None:
    """Raises UserError where the config has more layers than the file, before a name is made for each: it may say any number."""
    found = {int(match[1]) for match in map(_LAYER.search, tensors) if match}
    if config.num_layers > len(found):
        raise UserError(
            f"{where}: config.json tells of {config.num_layers} layers, but the tensors are of {len(found)}"
        )


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
    return hf_decoder.shapes(config) if isinstance(config, DecoderConfig) else hf_bert.shapes(config)


def count_parameters(config: TransformerConfig, pooler: bool = False) -> int:
    """Parameters of the architecture; with `pooler`, BERT's D x D pooler layer counted too, as the papers' sizes do."""
    extra = config.hidden_size * (config.hidden_size + 1) if pooler else 0
    return sum(int(np.prod(shape)) for shape in parameter_shapes(config).values()) + extra
