"""Low-rank adapters as functions on a parameter tree (Hu et al. 2021): W + (alpha / rank) A B for chosen kernels.

Kernels are Flax's, [in, out], so A is [in, rank] and B [rank, out]. On disk they have PEFT's own names and torch's orientation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.models.matmul import LORA_A, LORA_B

SUMS_AT_ONCE = 1 << 17  # of a kernel that is added to on the host, 1 MB, which a processor's cache holds
Adapters = dict[str, dict[str, Any]]  # Flax path of a kernel, as layer_0/attention/query/kernel -> {"A", "B"}


def paths(params: Tree, pattern: str) -> list[str]:
    """Flax paths of the kernels, two-dimensional, whose path the regular expression finds.

    Raises: UserError where it finds none.
    """
    flat = flatten_dict(params, sep="/")
    matching = [
        path for path, x in flat.items() if path.endswith("kernel") and np.ndim(x) == 2 and re.search(pattern, path)
    ]
    if not matching:
        raise UserError(f"LoRA: no kernel of the model matches {pattern!r}; there is {next(iter(flat))} for one")
    return matching


def start(params: Tree, pattern: str, rank: int, rng: np.random.Generator) -> Adapters:
    """Adapters that change nothing yet: A random, B zero.

    Args:
      params: the model's, Flax.
      pattern: as of paths.
      rank: of the adapters; 0: there are none.
    """
    flat = flatten_dict(params, sep="/")
    adapters: Adapters = {}
    for path in paths(params, pattern) if rank else []:
        rows, columns = np.shape(flat[path])
        adapters[path] = {
            "A": rng.uniform(-(rows**-0.5), rows**-0.5, (rows, rank)).astype(np.float32),
            "B": np.zeros((rank, columns), np.float32),
        }
    return adapters


def beside(
    params: Tree,
    adapters: Mapping[str, Mapping[str, Array]],
    alpha: float,
    rng: Array | None = None,
    dropout: float = 0.0,
) -> Tree:
    """The parameters with the adapters beside their kernels, where models.matmul.Dense reads them: x W + alpha / rank (x A) B.

    So a training step has them: an adapter begins far below a weight's last bfloat16 digit, and would be lost in the sum of both. Nor has
    the step a gradient of a whole kernel, which a device would have to exchange.

    Args:
      params: the model's, Flax.
      adapters: Flax path of a kernel [in, out] -> {"A" [in, rank], "B" [rank, out]}.
      alpha: A B is scaled by alpha / rank.
      rng: a key for the dropout; None: no dropout.
      dropout: the share of an adapter's inputs (rows of A) that are left out, the same for all tokens that a key is for.

    Raises: UserError for an adapter that does not fit.

    Source: Hu et al. 2021.
    """
    if rng is not None and dropout:
        adapters = {
            path: {"A": _thinned(adapter["A"], jax.random.fold_in(rng, i), dropout), "B": adapter["B"]}
            for i, (path, adapter) in enumerate(sorted(adapters.items()))
        }
    flat = dict(flatten_dict(params, sep="/"))
    for path, adapter in adapters.items():
        place = _checked(flat, path, adapter).removesuffix("kernel")
        flat[place + LORA_A] = adapter["A"]
        flat[place + LORA_B] = alpha / np.shape(adapter["A"])[1] * adapter["B"]
    return unflatten_dict(flat, sep="/")


def merge(params: Tree, adapters: Mapping[str, Mapping[str, Array]], alpha: float) -> Tree:
    """The parameters with the adapters added in, as whoever has the model takes it: on the host, to the same bits on every machine.

    So a model's hash, by which answers are kept, is the same wherever it is merged. Products of two float32 are exact in float64; they are
    added there in the order of the rank, and rounded to float32 once.

    Args:
      params, adapters: as of `beside`.
      alpha: A B is scaled by alpha / rank; with -alpha an adapter that was added is taken away, to rounding.

    Returns: as params, the kernels that were added to as numpy arrays, float32.

    Raises: UserError for an adapter that does not fit.
    """
    flat = dict(flatten_dict(params, sep="/"))
    for path, adapter in adapters.items():
        kernel = np.asarray(flat[_checked(flat, path, adapter)])
        a, b = (np.asarray(adapter[side], np.float64) for side in "AB")
        whole = np.empty(kernel.shape, np.float32)
        rows = max(1, SUMS_AT_ONCE // kernel.shape[1])
        for first in range(0, len(kernel), rows):
            block = slice(first, first + rows)
            total = np.zeros(kernel[block].shape)
            for r in range(len(b)):
                total += a[block, r, None] * b[r]
            whole[block] = kernel[block] + alpha / len(b) * total
        flat[path] = whole
    return unflatten_dict(flat, sep="/")


def _checked(flat: Mapping[str, Any], path: str, adapter: Mapping[str, Array]) -> str:
    """The path of a kernel that an adapter fits."""
    if path not in flat or np.shape(flat[path]) != (np.shape(adapter["A"])[0], np.shape(adapter["B"])[1]):
        raise UserError(f"LoRA: the adapter of {path} does not fit this model; is it of another base?")
    return path


def _thinned(A: Array, rng: Array, dropout: float) -> Array:
    keep = jax.random.bernoulli(rng, 1.0 - dropout, (A.shape[0], 1))
    return jnp.where(keep, A / (1.0 - dropout), 0.0)
