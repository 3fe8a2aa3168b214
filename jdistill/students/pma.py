"""Where D2LLM's new modules start: the pooler as a mean of the tokens, the interaction module as a similarity of two vectors.

The paper says nothing of their start. A random interaction module has to learn from its
pairs that two texts are to be compared at all, and a language model's vectors lie in a narrow cone, where every cosine is near one.
Shapes: D width of the vectors, F of the module.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder.encoder import Encoder
from jdistill.models.interaction import BRANCHES, random_iem
from jdistill.models.pma import random_pma

STARTS = ("similarity", "random")
NEAR_ZERO = 0.02  # in the place of zero, at which gradients would be zero too
SLOPE = 12.5  # of the logits of similarity_iem at a cosine of 0; a cosine over a temperature of 0.05 has 20
LEAST_DEVIATION = 0.1  # of a dimension, beside the median over dimensions
ROUNDING = 1e-6  # of a number's size; a deviation below it is none


def start_modules(
    start: str, student: Encoder, iem_size: int, rng: np.random.Generator, tokens: TokenTable
) -> tuple[Tree, Tree]:
    """Parameters of the pooler, {} where the student's pooling has none, and of the interaction module, {} where iem_size is 0.

    start "random", or "similarity": the vectors of `tokens`, all of which are read, have mean 0 and variance 1 in each dimension, by the
    pooler's last norm or, of another pooling, by the module's first layer, and the module starts as similarity_iem.
    """
    D, has_pooler = student.config.hidden_size, student.pooling == "pma"
    if start == "random" or not (has_pooler or iem_size):
        return random_pma(D, rng) if has_pooler else {}, random_iem(D, rng, iem_size) if iem_size else {}
    pooler = mean_pma(D, rng) if has_pooler else {}
    vectors = dataclasses.replace(student, pooler=pooler).encode_ids(tokens.lists(np.arange(len(tokens.lengths))))
    centre, deviation = vectors.mean(0), usable_deviation(vectors)
    if pooler:
        pooler["norm_2"] = {"scale": 1 / deviation, "bias": -centre / deviation}
        centre, deviation = np.zeros_like(centre), np.ones_like(deviation)
    return pooler, similarity_iem(centre, deviation, rng, iem_size) if iem_size else {}


def beside_cosine(head: Tree, scale: float) -> Tree:
    """The interaction module as it starts where cosines, times `scale`, are added to its logits: it adds nothing to them yet, and so ranks
    no pair worse than they do. Its features stay what they were; its last layer is zero."""
    zero = {name: np.zeros_like(part) for name, part in head["score"].items()}
    return head | {"score": zero, "cosine": np.float32(scale)}


def usable_deviation(vectors_NxD: np.ndarray) -> np.ndarray:
    """Each dimension's standard deviation, float32 [D], or LEAST_DEVIATION of the usual one where it is less: what hardly moves in the sample
    is not to become the loudest. Ones where nothing moves."""
    deviation_D = vectors_NxD.std(0, dtype=np.float64).astype(np.float32)
    deviation_D[deviation_D < ROUNDING * np.abs(vectors_NxD).max(0)] = 0.0
    usual = float(np.median(deviation_D))
    return np.maximum(deviation_D, LEAST_DEVIATION * usual) if usual > 0 else np.ones_like(deviation_D)


def mean_pma(width: int, rng: np.random.Generator) -> Tree:
    """random_pma's parameters, at which pma gives nearly the normalised mean of a text's states: a query near zero looks at all tokens
    alike, value and out leave them as they are."""
    params = random_pma(width, rng)
    for name in ("value", "out"):
        params[name]["kernel"] = np.eye(width, dtype=np.float32)
    params["query"] *= NEAR_ZERO
    params["feed"]["kernel"] *= NEAR_ZERO
    return params


def similarity_iem(centre_D: np.ndarray, deviation_D: np.ndarray, rng: np.random.Generator, hidden: int) -> Tree:
    """random_iem's parameters, at which the logit grows with the cosine of x and y, the two vectors less `centre` over `deviation`:
    SLOPE (sqrt(1 + cos) - sqrt(1 - cos)) in expectation over directions a, for x and y of length sqrt(D).

    |a (x + y)| is relu(a (x + y)) + relu(-a (x + y)), so the first layer holds these and those of x - y, the branches hand them on, and
    the last layer adds up the ones and takes away the others. F is 4 at least.
    """
    width, count = len(centre_D), hidden // 4
    params = random_iem(width, rng, hidden)
    bases = [np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(-(-count // width))]
    a = np.concatenate(bases, axis=1)[:, :count].astype(np.float32) / deviation_D[:, None]  # orthogonal, of length one
    query, passage = np.concatenate([a, -a, a, -a], axis=1), np.concatenate([a, -a, -a, a], axis=1)
    params["first"]["kernel"][:, : 4 * count] = np.concatenate([query, passage])
    params["first"]["bias"][: 4 * count] = -(centre_D @ (query + passage))
    for name in BRANCHES:
        params[name]["kernel"] = np.eye(hidden, dtype=np.float32)
    # For a normal variable of variance 2 + 2 cos, the mean of its size is 2 / sqrt(pi) sqrt(1 + cos).
    params["score"]["kernel"] = np.zeros((hidden, 1), np.float32)
    params["score"]["kernel"][: 4 * count, 0] = np.repeat([1, 1, -1, -1], count) * SLOPE * np.pi**0.5 / 2 / count
    return params
