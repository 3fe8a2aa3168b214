"""Low-rank adapters as functions on a parameter tree (Hu et al. 2021): W + (alpha / rank) A B for chosen kernels.

Kernels are Flax's, [in, out], so A is [in, rank] and B [rank, out]. On disk they have PEFT's own names and torch's orientation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import save_file

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings
from jdistill.encoder.formats.tensors import float_tensor, load_tensors

Array = jax.Array
Tree = Any
Adapters = dict[str, dict[str, Any]]  # Flax path of a kernel, as layer_0/attention/query/kernel -> {"A", "B"}


def paths(params: Tree, pattern: str) -> list[str]:
    """Flax paths of the kernels whose path the regular expression finds. Raises UserError where it finds none."""
    flat = flatten_dict(params, sep="/")
    found = [
        path for path, x in flat.items() if path.endswith("kernel") and np.ndim(x) == 2 and re.search(pattern, path)
    ]
    if not found:
        raise UserError(f"LoRA: no kernel of the model matches {pattern!r}; there is {next(iter(flat))} for one")
    return found


def start(params: Tree, pattern: str, rank: int, rng: np.random.Generator) -> Adapters:
    """Adapters that change nothing yet: A random, B zero. rank 0: none."""
    flat = flatten_dict(params, sep="/")
    found: Adapters = {}
    for path in paths(params, pattern) if rank else []:
        rows, columns = np.shape(flat[path])
        found[path] = {
            "A": rng.uniform(-(rows**-0.5), rows**-0.5, (rows, rank)).astype(np.float32),
            "B": np.zeros((rank, columns), np.float32),
        }
    return found


def merge(
    params: Tree,
    adapters: Mapping[str, Mapping[str, Array]],
    alpha: float,
    rng: Array | None = None,
    dropout: float = 0.0,
) -> Tree:
    """The parameters with the adapters added in. Under jax.grad with respect to `adapters` only they have a gradient.

    dropout: with rng, so many of an adapter's inputs (rows of A) are left out, the same for all tokens of a step: the product is
    made once for the weights, not for every token.
    """
    if rng is not None and dropout:
        adapters = {
            path: {"A": _thinned(adapter["A"], jax.random.fold_in(rng, i), dropout), "B": adapter["B"]}
            for i, (path, adapter) in enumerate(sorted(adapters.items()))
        }
    return _added(params, adapters, alpha, 1.0)


def _thinned(A: Array, rng: Array, dropout: float) -> Array:
    keep = jax.random.bernoulli(rng, 1.0 - dropout, (A.shape[0], 1))
    return jnp.where(keep, A / (1.0 - dropout), 0.0)


def unmerge(params: Tree, adapters: Mapping[str, Mapping[str, Array]], alpha: float) -> Tree:
    """The inverse of merge, to rounding."""
    return _added(params, adapters, alpha, -1.0)


def _added(params: Tree, adapters: Mapping[str, Mapping[str, Array]], alpha: float, sign: float) -> Tree:
    flat = dict(flatten_dict(params, sep="/"))
    for path, adapter in adapters.items():
        if path not in flat or np.shape(flat[path]) != (np.shape(adapter["A"])[0], np.shape(adapter["B"])[1]):
            raise UserError(f"LoRA: the adapter of {path} does not fit this model; is it of another base?")
        rank = np.shape(adapter["A"])[1]
        flat[path] = flat[path] + sign * alpha / rank * jnp.matmul(adapter["A"], adapter["B"], precision="highest")
    return unflatten_dict(flat, sep="/")


def save(folder: Path, adapters: Mapping[str, Mapping[str, Array]], alpha: float, names: Mapping[str, str]) -> None:
    """adapter_model.safetensors and adapter_config.json as PEFT has them for a causal language model, whose body is called model. names:
    Flax path -> the weight's name in torch, in that body."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors, modules, rank = {}, set(), 0
    for path, adapter in adapters.items():
        module = names[path].removesuffix(".weight")
        modules.add(module.rpartition(".")[2])
        rank = int(np.shape(adapter["A"])[1])
        for letter in ("A", "B"):
            tensors[f"base_model.model.model.{module}.lora_{letter}.weight"] = np.ascontiguousarray(
                np.asarray(adapter[letter]).T
            )
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    about = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted(modules),
        "bias": "none",
        "lora_dropout": 0.0,
        "fan_in_fan_out": False,
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
    }
    (folder / "adapter_config.json").write_text(json.dumps(about, indent=2) + "\n")


def load(folder: Path, names: Mapping[str, str]) -> tuple[Adapters, float]:
    """(adapters, alpha) from PEFT's files, of a causal language model or of its body alone. Raises UserError for adapters of weights that
    `names` has not, and for scales of another kind than alpha / rank."""
    path, about = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    if not path.is_file() or not about.is_file():
        raise UserError(f"{folder} holds no adapter_model.safetensors and adapter_config.json")
    settings, tensors = read_settings(about), load_tensors(path)
    alpha = settings.number("lora_alpha", 0.0, 1e9)
    for key in ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern"):
        if settings.raw(key, None):
            raise UserError(f"{about}: {key} is set; adapters are read that scale by lora_alpha / r alone")
    flax_of = {name.removesuffix(".weight"): flax for flax, name in names.items()}
    found: Adapters = {}
    for name in tensors:
        match = re.fullmatch(r"base_model\.model\.(?:model\.)?(.+)\.lora_([AB])\.weight", name)
        if match is None or match[1] not in flax_of:
            raise UserError(f"{path}: {name!r} is no adapter of this model; is it of another base?")
        found.setdefault(flax_of[match[1]], {})[match[2]] = float_tensor(tensors, name, [None, None], path).T
    targets = settings.raw("target_modules", None)
    if isinstance(targets, list) and not settings.raw("layers_to_transform", None):
        missing = {flax for name, flax in flax_of.items() if name.rpartition(".")[2] in targets} - found.keys()
        if missing:
            raise UserError(f"{path} has no adapter of {names[min(missing)]}; is it of another base, of fewer layers?")
    for flax, adapter in found.items():
        if adapter.keys() != {"A", "B"}:
            raise UserError(f"{path}: {names[flax]} has its lora_{next(iter(adapter))} alone; the file is not whole")
        if adapter["A"].shape[1] != adapter["B"].shape[0]:
            ranks = adapter["A"].shape[1], adapter["B"].shape[0]
            raise UserError(
                f"{path}: {names[flax]} has lora_A of rank {ranks[0]}, lora_B of {ranks[1]}; the file is damaged"
            )
        found[flax] = {letter: np.ascontiguousarray(tensor) for letter, tensor in adapter.items()}
    return found, alpha
