"""SimTDE's start: a compact embedding block and projection fitted to a teacher's embedding block before any training
step.

Truncated SVD of the teacher's block output gives each token its compact code; a ridge fit gives the projection back.
Both are weighted by how often tokens occur in the text, because that is how often the loss will see them. numpy only.

Sums over tokens are taken in float64: near the cut two principal axes explain almost the same share, and what float32 rounds,
which differs from one processor's product to another's, would turn them.
"""

from __future__ import annotations

import numpy as np

from jdistill.core.types import Tree


def layer_norm(x: np.ndarray, norm: Tree, eps: float) -> np.ndarray:
    """LayerNorm over the last axis. norm: {"scale" [D], "bias" [D]}."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + eps) * norm["scale"] + norm["bias"]


def block_output(block: Tree, ids: np.ndarray, positions: np.ndarray, eps: float) -> np.ndarray:
    """Output of an embedding block for tokens at positions (rows of the position table): [N, E] float32."""
    x = block["word"]["embedding"][ids] + block["position"]["embedding"][positions]
    if "type" in block:
        x = x + block["type"]["embedding"][0]
    return layer_norm(x, block["norm"], eps)


def second_moment(
    x: np.ndarray, y: np.ndarray | None = None, weights: np.ndarray | None = None, rows: int = 8192
) -> np.ndarray:
    """x.T @ y / N in float64, without a copy of either in it.

    Args:
      x: float [N, A].
      y: float [N, B]; None: x.
      weights: float [N], of mean 1, that rows count by; None: alike.
      rows: how many are turned into float64 at once.
    """
    y = x if y is None else y
    total = np.zeros((x.shape[1], y.shape[1]))
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        left = x[part].astype(np.float64)
        total += (left if weights is None else left * weights[part, None]).T @ y[part].astype(np.float64)
    return total / len(x)


def _square_root(metric: np.ndarray) -> np.ndarray:
    """The symmetric square root of a positive definite matrix."""
    values, vectors = np.linalg.eigh(metric)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _by_frequency(ids: np.ndarray, power: float) -> np.ndarray:
    """What each token of a sample counts, of mean 1, where an id counts by its frequency to a power: float64 [N]."""
    weights = np.bincount(ids)[ids] ** (power - 1.0)
    return np.asarray(weights / weights.mean())


def _mean(x: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """The mean of rows, float32 [A]. weights: as of second_moment."""
    return np.asarray(x.mean(0) if weights is None else (weights @ x / len(x)).astype(np.float32))


def compact_start(
    block: Tree,
    width: int,
    ids: np.ndarray,
    positions: np.ndarray,
    eps: float,
    ridge: float = 1e-3,
    metric: np.ndarray | None = None,
    power: float = 1.0,
) -> tuple[Tree, Tree, float]:
    """A compact block, its projection to the teacher's width D, and the share of variance they explain.

    block: the teacher's embedding block (word, position, norm and maybe type). width: E of the student. ids, positions:
    int [N], a sample of tokens of the training text with the rows of the position table where they stood. metric: what a
    difference d of block outputs counts, d^T metric d, float64 [D, D], positive definite; None: its square. power: a token
    counts by its frequency in the sample to this power; below 1 rare ones, which another text may be full of, count more. Returns
    (block of width E, {"kernel" [E, D], "bias" [D]}, 1 - residual / variance over the sample).
    """
    target_NxD = block_output(block, ids, positions, eps)
    weights_N = None if power == 1.0 else _by_frequency(ids, power)
    mean_D = _mean(target_NxD, weights_N)
    centred = target_NxD - mean_D
    covariance = second_moment(centred, weights=weights_N)
    root = None if metric is None else _square_root(metric)
    _, vectors = np.linalg.eigh(covariance if root is None else root @ covariance @ root)
    axes_DxE = vectors[:, ::-1][:, :width]
    basis_DxE = (axes_DxE if root is None else root @ axes_DxE).astype(np.float32)

    # The code of a token is its block output at its mean position, projected on the principal axes: tokens that the
    # sample lacks get one too. The code of a position is what it adds on average to the codes of the tokens that
    # stand there.
    table = block["word"]["embedding"]
    counts = np.bincount(positions, minlength=len(block["position"]["embedding"]))
    usual = block | {"position": {"embedding": (counts @ block["position"]["embedding"] / counts.sum())[None]}}
    word_codes = (block_output(usual, np.arange(len(table)), np.zeros(len(table), int), eps) - mean_D) @ basis_DxE
    extra_NxE = centred @ basis_DxE - word_codes[ids]
    shift = np.stack([np.bincount(positions, extra, len(counts)) for extra in extra_NxE.T], 1).astype(np.float32)
    shift /= np.maximum(counts, 1)[:, None]
    last = int(np.flatnonzero(counts)[-1])
    shift[last + 1 :] = shift[max(0, last - 8) : last + 1].mean(0)  # positions the sample never reaches

    # LayerNorm would make every code as long as every other; the ridge fit then explains what is left of the variance.
    scale = np.float32(1.0 / max(float(word_codes.std()), 1e-6))
    start: Tree = {
        "word": {"embedding": word_codes.astype(np.float32) * scale},
        "position": {"embedding": shift * scale},
        "norm": {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)},
    }
    if "type" in block:
        start["type"] = {"embedding": np.zeros((len(block["type"]["embedding"]), width), np.float32)}
    codes = block_output(start, ids, positions, eps)
    centre = _mean(codes, weights_N)
    gram = second_moment(codes - centre, weights=weights_N) + ridge * np.eye(width)
    kernel = np.linalg.solve(gram, second_moment(codes - centre, centred, weights_N)).astype(np.float32)
    bias = (mean_D - centre @ kernel).astype(np.float32)
    residual = target_NxD - (codes @ kernel + bias)
    explained = 1.0 - float(np.square(residual).sum() / np.square(centred).sum())
    return start, {"kernel": kernel, "bias": bias}, explained


def random_start(block: Tree, width: int, hidden: int, seed: int) -> tuple[Tree, Tree]:
    """The ablation: a block and projection of the same shapes, normal(0.02) as BERT starts."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return (0.02 * rng.standard_normal(shape)).astype(np.float32)

    start: Tree = {
        name: {"embedding": normal(len(block[name]["embedding"]), width)}
        for name in ("word", "position", "type")
        if name in block
    }
    start["norm"] = {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}
    return start, {"kernel": normal(width, hidden), "bias": np.zeros(hidden, np.float32)}
