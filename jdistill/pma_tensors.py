"""PMA's and IEM's parameters by the names and in the orientation of their torch modules (jdistill/exported), and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

OUTPUT = {"score": "output"}  # what the module calls a layer by another name


def to_torch(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """{"key": {"kernel" [in, out], "bias"}, "norm_1": {"scale", "bias"}, "query": array} to key.weight [out, in], norm_1.weight, query …"""
    tensors: dict[str, np.ndarray] = {}
    for name, layer in params.items():
        name = OUTPUT.get(name, name)
        if not isinstance(layer, Mapping):
            tensors[name] = np.asarray(layer, np.float32)
            continue
        weight = layer["kernel"].T if "kernel" in layer else layer["scale"]
        tensors[f"{name}.weight"] = np.ascontiguousarray(weight, np.float32)
        tensors[f"{name}.bias"] = np.asarray(layer["bias"], np.float32)
    return tensors


def from_torch(tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The inverse of to_torch."""
    inner = {theirs: ours for ours, theirs in OUTPUT.items()}
    params: dict[str, Any] = {}
    for name, tensor in tensors.items():
        layer, _, part = name.rpartition(".")
        layer = inner.get(layer, layer)
        if not layer:
            params[name] = tensor
        elif part == "bias":
            params.setdefault(layer, {})["bias"] = tensor
        else:
            kind = "kernel" if tensor.ndim == 2 else "scale"
            params.setdefault(layer, {})[kind] = np.ascontiguousarray(tensor.T)
    return params
