"""Layers whose feed-forward is narrower than the start's: which inner neurons stay, and what stands in for the others.

The neurons that stay are chosen one by one, as in orthogonal matching pursuit: the one that explains most of what the
others leave unexplained of the feed-forward's output. Its second matrix is then the least squares' own, on the text that
the student is trained on. Both need the neurons' means and covariances alone.

Sums are taken in float64, as compact.py's are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.data.batching.padding import batches_by_length
from jdistill.models.bert.compact import second_moment
from jdistill.models.bert.config import ACTIVATIONS, BertConfig
from jdistill.models.bert.module import Bert

NEURON_TOKENS = 40_000  # that the neurons are measured on: some ten a neuron and more, and 20 seconds of two cores
TEXTS_AT_ONCE = 32  # of like length
RIDGE = 1e-4  # of the neurons' mean variance: what least squares adds to each


class Moments(NamedTuple):
    """Of the inner neurons of one layer over tokens, float64: mean [F] and covariance [F, F]."""

    mean: np.ndarray
    covariance: np.ndarray


def narrowed_layers(
    config: BertConfig, whole: BertConfig, params: Tree, layers: Sequence[int | None], texts: Sequence[Sequence[int]]
) -> Tree:
    """The start's parameters with `config.intermediate_size` neurons in each layer that the student takes.

    Args:
      whole, params: the start's sizes and Flax parameters, float32.
      layers: that the student takes, counted from 0; None for one that starts at random.
      texts: token ids of the training text, at least one text.
    """
    taken = sorted({layer for layer in layers if layer is not None})
    moments = _moments(whole, params, taken, texts)
    narrow, shares = dict(params), []
    for layer in taken:
        narrow[f"layer_{layer}"], explained = narrowed(
            params[f"layer_{layer}"], moments[layer], config.intermediate_size
        )
        shares.append(f"{100 * explained:.1f}")
    log.info(
        "narrow layers: %d of %d inner neurons explain %s %% of the variance of what the feed-forwards of the start's layers %s add",
        config.intermediate_size,
        whole.intermediate_size,
        ", ".join(shares),
        ", ".join(str(layer + 1) for layer in taken),
    )
    return narrow


def narrowed(layer: Tree, moments: Moments, neurons: int) -> tuple[Tree, float]:
    """A layer with so many of its inner neurons, and the share of its feed-forward's variance that they explain."""
    up, down = layer["up"], layer["down"]
    kernel_FxD = np.asarray(down["kernel"], np.float64)
    target_FxD = moments.covariance @ kernel_FxD  # the neurons' covariance with what the feed-forward adds
    kept = chosen_neurons(moments.covariance, target_FxD, neurons)
    fitted_KxD = _least_squares(moments.covariance, target_FxD, kept)
    bias = np.asarray(down["bias"], np.float64) + moments.mean @ kernel_FxD - moments.mean[kept] @ fitted_KxD
    variance = float((kernel_FxD * target_FxD).sum())
    difference_FxD = kernel_FxD.copy()
    difference_FxD[kept] -= fitted_KxD
    unexplained = float((difference_FxD * (moments.covariance @ difference_FxD)).sum())
    changed = {
        "up": {"kernel": np.asarray(up["kernel"])[:, kept], "bias": np.asarray(up["bias"])[kept]},
        "down": {"kernel": fitted_KxD.astype(np.float32), "bias": bias.astype(np.float32)},
    }
    return dict(layer) | changed, 1.0 - unexplained / max(variance, np.finfo(np.float64).tiny)


def chosen_neurons(covariance: np.ndarray, target: np.ndarray, count: int) -> np.ndarray:
    """The `count` neurons, in order, that are chosen one by one, each for what it explains of what the others leave.

    Args:
      covariance: of the neurons, float64 [F, F].
      target: covariance of the neurons with what is to be explained, float64 [F, D].
    """
    # What is left of both when the chosen neurons are regressed out: a step of Cholesky's factorisation, by that pivot.
    left_FxF = covariance + _ridge(covariance) * np.eye(len(covariance))
    target_FxD, free = target.copy(), np.ones(len(covariance), bool)
    for _ in range(count):
        gain_F = np.square(target_FxD).sum(1) / np.maximum(left_FxF.diagonal(), np.finfo(np.float64).tiny)
        best = int(np.argmax(np.where(free, gain_F, -1.0)))
        free[best] = False
        share_F = left_FxF[:, best] / left_FxF[best, best]
        target_FxD -= np.outer(share_F, target_FxD[best])
        left_FxF -= np.outer(share_F, left_FxF[best])
    return np.flatnonzero(~free)


def _least_squares(covariance: np.ndarray, target: np.ndarray, kept: np.ndarray) -> np.ndarray:
    inner = covariance[np.ix_(kept, kept)] + _ridge(covariance) * np.eye(len(kept))
    return np.asarray(np.linalg.solve(inner, target[kept]))


def _ridge(covariance: np.ndarray) -> float:
    """Above 0 also where no neuron ever moves."""
    return max(RIDGE * float(covariance.diagonal().mean()), float(np.finfo(np.float32).tiny))


def _moments(
    whole: BertConfig, params: Tree, layers: Sequence[int], texts: Sequence[Sequence[int]]
) -> dict[int, Moments]:
    """Of each layer its neurons' moments over the texts' tokens."""
    F, count = whole.intermediate_size, 0
    means, squares = ({layer: np.zeros(shape) for layer in layers} for shape in ((F,), (F, F)))
    for _, ids, mask in batches_by_length(texts, whole.pad_token_id, whole.usable_positions, TEXTS_AT_ONCE):
        for layer, values_BxLxF in _inner(whole, tuple(layers), params, jnp.asarray(ids), jnp.asarray(mask)).items():
            values_NxF = np.asarray(values_BxLxF)[mask]
            means[layer] += values_NxF.sum(0, dtype=np.float64)
            squares[layer] += len(values_NxF) * second_moment(values_NxF)
        count += int(mask.sum())
    of_mean = {layer: means[layer] / count for layer in layers}
    return {layer: Moments(mean, squares[layer] / count - np.outer(mean, mean)) for layer, mean in of_mean.items()}


@partial(jax.jit, static_argnames=("whole", "layers"))
def _inner(
    whole: BertConfig, layers: tuple[int, ...], params: Tree, ids_BxL: jax.Array, mask_BxL: jax.Array
) -> dict[int, jax.Array]:
    """Of each layer what its inner neurons give, [B, L, F]."""
    _, seen = Bert(whole).apply(
        {"params": params}, ids_BxL, mask_BxL, capture_intermediates=lambda module, _: module.name == "up"
    )
    before = flatten_dict(seen["intermediates"], sep="/")
    return {layer: ACTIVATIONS[whole.activation](before[f"layer_{layer}/up/__call__"][0]) for layer in layers}
