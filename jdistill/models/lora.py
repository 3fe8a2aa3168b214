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


def merge(
    params: Tree,
    adapters: Mapping[str, Mapping[str, Array]],
    alpha: float,
    rng: Array | None = None,
    dropout: float = 0.0,
) -> Tree:
    """The parameters with the adapters added in. Under jax.grad with respect to `adapters` only they have a gradient.

    Args:
      params: the model's, Flax.
      adapters: Flax path of a kernel [in, out] -> {"A" [in, rank], "B" [rank, out]}.
      alpha: A B is scaled by alpha / rank; with -alpha an adapter that was added is taken away, to rounding.
      rng: a key for the dropout; None: no dropout.
      dropout: the share of an adapter's inputs (rows of A) that are left out, the same for all tokens of a step: the product is made once
        for the weights, not for every token.

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
        if path not in flat or np.shape(flat[path]) != (np.shape(adapter["A"])[0], np.shape(adapter["B"])[1]):
            raise UserError(f"LoRA: the adapter of {path} does not fit this model; is it of another base?")
        rank = np.shape(adapter["A"])[1]
        flat[path] = flat[path] + alpha / rank * jnp.matmul(adapter["A"], adapter["B"], precision="highest")
    return unflatten_dict(flat, sep="/")


def _thinned(A: Array, rng: Array, dropout: float) -> Array:
    keep = jax.random.bernoulli(rng, 1.0 - dropout, (A.shape[0], 1))
    return jnp.where(keep, A / (1.0 - dropout), 0.0)
