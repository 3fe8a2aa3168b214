"""Where D2LLM's new modules start: the pooler as a whitened mean of the tokens, the interaction module as a similarity of two vectors.

The paper says nothing of their start. A random interaction module has to learn from its
pairs that two texts are to be compared at all, and a language model's vectors lie in a narrow cone, where every cosine is near one and a
few directions decide it. Shapes: N texts of a sample, D width of the vectors, F of the module.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from jdistill.data.batches import TokenTable
from jdistill.encoder import Encoder
from jdistill.models.pma import BRANCHES, heads_for, pma, random_iem, random_pma

Tree = Any
STARTS = ("similarity", "random")
SMALL = 0.02  # in the place of zero, at which gradients would be zero too
SLOPE = 12.5  # of the logits of similarity_iem at a cosine of 0; a cosine over a temperature of 0.05 has 20
LEAST_SPREAD = 0.1  # of a dimension, beside the median over dimensions
ROUNDING = 1e-6  # of a number's size; a spread below it is none


def start_modules(
    start: str, student: Encoder, iem_size: int, rng: np.random.Generator, tokens: TokenTable
) -> tuple[Tree, Tree]:
    """Parameters of the pooler, {} where the student's pooling has none, and of the interaction module, {} where iem_size is 0.

    start "random", or "similarity": the mean states of `tokens`, all of which are read, are whitened by the pooler's output layer, before
    its norms, or the vectors of another pooling by the module's first layer, and the module starts as similarity_iem.
    """
    D, has_pooler = student.config.hidden_size, student.pooling == "pma"
    if start == "random" or not (has_pooler or iem_size):
        return random_pma(D, rng) if has_pooler else {}, random_iem(D, rng, iem_size) if iem_size else {}
    pooled = dataclasses.replace(student, pooling="mean", pooler={}) if has_pooler else student
    sample_NxD = pooled.encode_ids(tokens.lists(np.arange(len(tokens.lengths))))
    centre_D, white_DxD, axes_DxD = whitening(sample_NxD)
    if not has_pooler:
        head = similarity_iem((sample_NxD - centre_D) @ white_DxD, axes_DxD, rng, iem_size)
        return {}, _behind(centre_D, white_DxD, head)
    pooler = mean_pma(D, rng)
    pooler["out"] = {"kernel": white_DxD, "bias": -centre_D @ white_DxD}
    if not iem_size:
        return pooler, {}
    one_token_Nx1 = jnp.ones((len(sample_NxD), 1), bool)  # a mean is what is mixed of a text of one token
    vectors_NxD = np.asarray(pma(pooler, jnp.asarray(sample_NxD)[:, None], one_token_Nx1, heads_for(D)))
    return pooler, similarity_iem(vectors_NxD, axes_DxD, rng, iem_size)


def whitening(vectors_NxD: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(centre [D], W [D, D], axes [D, D]), float32. Along an axis, a column, on which the sample with each dimension over its spread has the
    variance v, (x - centre) W has v / (v + mean v): loud ones are levelled, those below the mean, the noise among them, stay quiet. The axes
    are in falling order of v. W turns back to the dimensions as they were (ZCA), which so stay alike in size."""
    centre_D, spread_D = vectors_NxD.mean(0, dtype=np.float64), usable_spread(vectors_NxD)
    x = (vectors_NxD.astype(np.float64) - centre_D) / spread_D
    variance_D, axes_DxD = (found[..., ::-1] for found in np.linalg.eigh(x.T @ x / len(x)))
    usual = variance_D.mean() if variance_D.mean() > ROUNDING else 1.0  # nearly one, unless nothing moves
    white_DxD = (axes_DxD * (np.maximum(variance_D, 0) + usual) ** -0.5) @ axes_DxD.T / spread_D[:, None]
    return centre_D.astype(np.float32), white_DxD.astype(np.float32), axes_DxD.astype(np.float32)


def usable_spread(vectors_NxD: np.ndarray) -> np.ndarray:
    """Each dimension's standard deviation, float32 [D], or LEAST_SPREAD of the usual one where it is less: what hardly moves in the sample
    is not to become the loudest. Ones where nothing moves."""
    spread_D = vectors_NxD.std(0, dtype=np.float64).astype(np.float32)
    spread_D[spread_D < ROUNDING * np.abs(vectors_NxD).max(0)] = 0.0
    usual = float(np.median(spread_D))
    return np.maximum(spread_D, LEAST_SPREAD * usual) if usual > 0 else np.ones_like(spread_D)


def mean_pma(width: int, rng: np.random.Generator) -> Tree:
    """random_pma's parameters, at which pma gives nearly the normalised mean of a text's states: a query near zero looks at all tokens
    alike, value and out leave them as they are."""
    params = random_pma(width, rng)
    for name in ("value", "out"):
        params[name]["kernel"] = np.eye(width, dtype=np.float32)
    params["query"] *= SMALL
    params["feed"]["kernel"] *= SMALL
    return params


def similarity_iem(sample_NxD: np.ndarray, axes_DxD: np.ndarray, rng: np.random.Generator, hidden: int) -> Tree:
    """random_iem's parameters, at which the logit grows with the cosine of two vectors x and y like those of the sample, or of their
    projections on the first F/4 axes where these are fewer than D: SLOPE (sqrt(1 + cos) - sqrt(1 - cos)), as a mean over directions a.

    |a (x + y)| is relu(a (x + y)) + relu(-a (x + y)), so the first layer holds these and those of x - y, the branches hand them on, and
    the last layer adds up the ones and takes away the others. F is 4 at least. The F/4 directions come in blocks of D at most; a block of
    k is a random orthogonal basis of the span of the first k axes, where texts differ most.
    """
    width, left = len(axes_DxD), hidden // 4
    params, parts = random_iem(width, rng, hidden), []
    while left:
        count = min(left, width)
        parts.append(axes_DxD[:, :count] @ np.linalg.qr(rng.standard_normal((count, count)))[0])
        left -= count
    a = np.concatenate(parts, axis=1)
    size = (sample_NxD @ a).std(0)
    # Whitened numbers are of the order of one; what is far less is rounding. So that a x has variance 1:
    a = (a / np.where(size > 1e-4, size, 1.0)).astype(np.float32)
    count = a.shape[1]
    query, passage = np.concatenate([a, -a, a, -a], axis=1), np.concatenate([a, -a, -a, a], axis=1)
    params["first"]["kernel"][:, : 4 * count] = np.concatenate([query, passage])
    for name in BRANCHES:
        params[name]["kernel"] = np.eye(hidden, dtype=np.float32)
    # For a normal variable of variance 2 + 2 cos, the mean of its size is 2 / sqrt(pi) sqrt(1 + cos).
    params["score"]["kernel"] = np.zeros((hidden, 1), np.float32)
    params["score"]["kernel"][: 4 * count, 0] = np.repeat([1, 1, -1, -1], count) * SLOPE * np.pi**0.5 / 2 / count
    return params


def _behind(centre_D: np.ndarray, white_DxD: np.ndarray, params: Tree) -> Tree:
    """The same module of x as `params` of (x - centre) W."""
    D = len(centre_D)
    sides = [white_DxD @ params["first"]["kernel"][side] for side in (slice(0, D), slice(D, None))]
    first = {"kernel": np.concatenate(sides), "bias": params["first"]["bias"] - centre_D @ (sides[0] + sides[1])}
    return params | {"first": first}
