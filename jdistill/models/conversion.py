"""Parameters between Flax paths and tensors on disk, by an architecture's table of names; shapes by its module."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.core.types import Tree

Names = dict[str, tuple[str, bool]]  # Flax path -> (name on disk, whether to transpose)
LAYER_NUMBER = re.compile(r"(?:^|\.)layers?\.(\d{1,9})\.")
# Of a task's head, or of what transformers once kept beside the parameters: no state of a token comes from it.
OF_HEADS = re.compile(
    r"(?:^|\.)(?:pooler|\w+_head|cls|score|sequence_summary|\w*classifier|qa_outputs|decoder|head|\w*predictions|generator_\w+|seq_relationship|vocab_\w+"
    r"|embed_out|vision\w*|multi_modal\w*|position_ids|inv_freq)(?:\.|$)"
)
OF_A_LAYER = re.compile(r"\w*(?:layers?|layer_groups|block|h)\.\d+\.")
MOST_LAYERS = 10_000  # more than any model has; what a config says is held against its tensors when they are read


def names_by_table(table: Mapping[str, str], num_layers: int) -> Names:
    """Names from a table of Flax paths, with {i} for the layer, -> names on disk without .weight and .bias.

    A path that ends in "embedding" or "scale" is one tensor, one in "norm" a scale and a bias, any other a kernel and a bias. A
    Flax "kernel" is the transpose of a torch "weight".
    """
    names: Names = {}
    for path, name in table.items():
        for i in range(num_layers) if "{i}" in path else (0,):
            flax, torch = path.replace("{i}", str(i)), name.replace("{i}", str(i))
            if flax.endswith(("/embedding", "/scale")):
                names[flax] = (f"{torch}.weight", False)
                continue
            leaf = "scale" if flax.endswith("norm") else "kernel"
            names[f"{flax}/{leaf}"] = (f"{torch}.weight", leaf == "kernel")
            names[f"{flax}/bias"] = (f"{torch}.bias", False)
    return names


def module_shapes(module: Callable[..., Any], config: Any) -> dict[str, tuple[int, ...]]:
    """Flax path -> shape of every parameter that the module's init makes. module: (config, dtype, remat) -> Flax module."""
    return dict(_shapes(module, config))


@lru_cache(maxsize=256)
def _shapes(module: Callable[..., Any], config: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    # Layers are alike, the first perhaps without a norm: two are traced, whatever number a file may tell of.
    two = module(replace(config, num_layers=min(config.num_layers, 2)), jnp.float32, False)

    def init() -> Tree:
        return two.init(jax.random.key(0), jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool))["params"]

    shapes: dict[str, tuple[int, ...]] = {}
    for path, leaf in flatten_dict(jax.eval_shape(init), sep="/").items():
        for i in range(1, config.num_layers) if path.startswith("layer_1/") else (1,):
            shapes[path.replace("layer_1/", f"layer_{i}/", 1)] = tuple(leaf.shape)
    return tuple(shapes.items())


def plain_names(tensors: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The tensors without a prefix such as `bert.`, and with LayerNorm's old gamma and beta as weight and bias."""
    return {
        name.removeprefix(prefix)
        .replace("LayerNorm.gamma", "LayerNorm.weight")
        .replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
    }


def check_layers(
    tensors: Mapping[str, np.ndarray],
    num_layers: int,
    where: str,
    layer: re.Pattern[str] = LAYER_NUMBER,
    what: str = "layers",
) -> None:
    """Raises UserError where the config has more layers than the file, before a name is made for each: it may say any number.

    Args:
      layer: finds the part of a tensor's name that says whose it is, its numbers as groups.
      what: the layers are called in the message.
    """
    layers = {match.groups() for match in map(layer.search, tensors) if match}
    if num_layers > len(layers):
        raise UserError(f"{where}: config.json tells of {num_layers} {what}, but the tensors are of {len(layers)}")


def from_tensors(
    names: Names,
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, np.ndarray],
    where: str,
    config: str = "config.json",
) -> Tree:
    """Flax parameters from tensors. Raises UserError naming the tensor that is missing or has another shape; config: the file that
    told the shapes."""
    flat: dict[str, np.ndarray] = {}
    _tell_left_out(names, tensors, where)
    for path, (name, transpose) in names.items():
        if name not in tensors:
            raise UserError(
                f"{where}: tensor {name} is missing; found {len(tensors)} tensors such as {sorted(tensors)[:3]}"
            )
        value = tensors[name].T if transpose else tensors[name]
        if value.shape != shapes[path]:
            raise UserError(
                f"{where}: tensor {name} has shape {tensors[name].shape}, but {config} asks for "
                f"{shapes[path][::-1] if transpose else shapes[path]}"
            )
        flat[path] = np.ascontiguousarray(value)
    return unflatten_dict(flat, sep="/")


def _tell_left_out(names: Names, tensors: Mapping[str, np.ndarray], where: str) -> None:
    """Warns of matrices that the architecture has no place for, but for layers beyond the config's and the heads of known tasks."""
    used = {name for name, _ in names.values()}
    of_layers = {
        number[0] for number in map(OF_A_LAYER.search, used) if number
    }  # others are beyond the config's, as transformers has it
    left_out = [
        name for name in tensors if name not in used and tensors[name].ndim > 1 and tensors[name].dtype.kind == "f"
    ]
    left_out = [name for name in left_out if not (number := OF_A_LAYER.search(name)) or number[0] in of_layers]
    if other := [name for name in left_out if not OF_HEADS.search(name)]:
        log.warning(
            "WARNING: %s: what the tensors %s are for is not computed here, nor by transformers without its publisher's own code; where the "
            "model's vectors need them, it can teach through st:SOURCE (torch extra)",
            where, ", ".join(sorted(other)[:4]),
        )  # fmt: skip


def to_tensors(names: Names, params: Tree) -> dict[str, np.ndarray]:
    """Tensors, float32, from Flax parameters; the inverse of from_tensors, exactly."""
    flat = flatten_dict(params, sep="/")
    if set(flat) != set(names):
        raise ValueError(f"parameters do not match the architecture: {sorted(set(flat) ^ set(names))[:4]}")
    return {
        name: np.ascontiguousarray(
            np.asarray(flat[path], np.float32).T if transpose else np.asarray(flat[path], np.float32)
        )
        for path, (name, transpose) in names.items()
    }
