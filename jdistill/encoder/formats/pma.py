"""PMA's and IEM's parameters by the names and in the orientation of their torch modules (st_modules), and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.json_files import read_settings
from jdistill.encoder.formats.tensors import WEIGHTS_FILE, fitted_tree, load_tensors
from jdistill.models.interaction import BRANCHES
from jdistill.models.pma import heads_for

OUTPUT = {"score": "output"}  # what the module calls a layer by another name


def to_torch(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Parameters of PMA or IEM by the names and in the orientation of their torch modules.

    Args:
      params: such as {"key": {"kernel" [in, out], "bias" [out]}, "norm_1": {"scale" [D], "bias" [D]}, "query": [D]}.

    Returns: such as {"key.weight" [out, in], "key.bias" [out], "norm_1.weight" [D], "norm_1.bias" [D], "query" [D]}, float32.
    """
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
        else:
            kind = "bias" if part == "bias" else "kernel" if tensor.ndim == 2 else "scale"
            of_layer = params.setdefault(layer, {})
            if isinstance(of_layer, dict):  # else a tensor has the layer's own name, and the shapes will not fit
                of_layer[kind] = np.ascontiguousarray(tensor.T)
    return params


def read_pma(folder: Path, width: int) -> dict[str, Any]:
    """The parameters of a PmaPooling module, float32, as models.pma.random_pma has them.

    Args:
      folder: of the module.
      width: of the states.

    Raises: UserError where one is missing or of another shape.
    """
    settings = read_settings(folder / "config.json")
    if settings.integer("heads", 1) != heads_for(width):
        raise settings.fault("heads", f"is {settings.raw('heads')}; of a width of {width} it is {heads_for(width)}")
    norm = {"scale": (width,), "bias": (width,)}
    shapes: dict[str, Any] = {name: _dense(width, width) for name in ("to_query", "key", "value", "out", "feed")}
    shapes |= {"query": (width,), "norm_1": norm, "norm_2": norm}
    return fitted_tree(from_torch(load_tensors(folder / WEIGHTS_FILE)), shapes, folder / WEIGHTS_FILE)


def read_iem(folder: Path, kinds: Sequence[str]) -> tuple[dict[str, Any], str]:
    """(parameters float32, kind) of an Interaction module, as models.interaction.random_iem has them.

    Args:
      folder: of the module.
      kinds: that there are, models.interaction.INTERACTIONS.

    Raises: UserError where a tensor is missing or does not fit.
    """
    settings = read_settings(folder / "config.json")
    width, hidden = settings.integer("embedding_dimension", 1), settings.integer("hidden", 1)
    kind = settings.text("interaction", among=kinds)
    shapes: dict[str, Any] = {name: _dense(hidden, hidden) for name in BRANCHES}
    shapes |= {"first": _dense(2 * width, hidden), "score": _dense(hidden, 1)}
    shapes |= {"cosine": ()} if settings.flag("beside_cosine", False) else {}
    return fitted_tree(from_torch(load_tensors(folder / WEIGHTS_FILE)), shapes, folder / WEIGHTS_FILE), kind


def _dense(rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {"kernel": (rows, columns), "bias": (columns,)}
