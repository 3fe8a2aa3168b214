"""HSIC, the Hilbert-Schmidt independence criterion (Gretton et al. 2005), by sums and row means of two Gram matrices.

The centring matrix H = I - 11ᵀ/n is never formed, nor, with a block size, a Gram matrix whole. n rows, D and E their
widths.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.types import Array
from jdistill.losses.embedding import HIGHEST, floored, over_row_blocks, unit

KERNELS = ("rbf", "imq", "linear")
ESTIMATORS = ("biased", "n_minus_1", "unbiased")
ROWS_OF_MEDIAN = 256  # that the median heuristic looks at
SPREAD = np.uint32(2654435761)  # Knuth's: numbers that follow one another, times it, stand in no order
FEWEST_ROWS = {"biased": 1, "n_minus_1": 2, "unbiased": 4}


class Hsic(NamedTuple):
    """HSIC, and what tells whether its kernels are alive: scalars, float32.

    A Gram matrix near a multiple of the identity (off-diagonal mean near 0, rank n) has no gradient, and one of nearly equal entries
    (rank 1) none either. x is the first argument of hsic, s the second.
    """

    value: Array
    off_diagonal_x: Array  # mean of the Gram matrix off its diagonal
    off_diagonal_s: Array
    rank_x: Array  # effective rank, (tr K)² / ||K||²
    rank_s: Array
    # HSIC(X, S) / sqrt(HSIC(X, X) HSIC(S, S)), each unbiased: about 0 where independent, 1 the same up to scale (Kornblith et al. 2019).
    cka: Array


def median_distance(
    x_nxD: Array, mask_n: Array | None = None, rows: int = ROWS_OF_MEDIAN, numbers_n: Array | None = None
) -> Array:
    """The median squared distance of pairs of different rows.

    Args:
      x_nxD: rows of any floating type.
      mask_n: true for rows that count; None: all.
      rows: so many that count are looked at.
      numbers_n: int32, of the text in each row, by a hash of which they are chosen, whatever order they stand in; None: the first.

    Returns: scalar, float32, above 0; it has no gradient.
    """
    mask_n = jnp.ones(x_nxD.shape[0], bool) if mask_n is None else mask_n.astype(bool)
    order_n = jnp.arange(x_nxD.shape[0]) if numbers_n is None else numbers_n.astype(jnp.uint32) * SPREAD >> 1
    first = jnp.argsort(jnp.where(mask_n, order_n.astype(jnp.int32), jnp.iinfo(jnp.int32).max), stable=True)[:rows]
    x, real = jax.lax.stop_gradient(x_nxD[first].astype(jnp.float32)), mask_n[first]
    x = x - jnp.where(real[:, None], x, 0.0).sum(0) / jnp.maximum(real.sum(), 1)
    pairs = real[:, None] & real & ~jnp.eye(len(real), dtype=bool)
    return jnp.maximum(jnp.nan_to_num(jnp.nanmedian(jnp.where(pairs, squared_distances(x, x), jnp.nan))), 1e-12)


def squared_distances(a_bxD: Array, b_nxD: Array) -> Array:
    """||a_i - b_j||² of every two rows.

    Args:
      a_bxD, b_nxD: float32.

    Returns: float32 [b, n], never below 0.
    """
    product_bxn = jnp.dot(a_bxD, b_nxD.T, precision=HIGHEST)
    return floored(jnp.square(a_bxD).sum(-1)[:, None] + jnp.square(b_nxD).sum(-1) - 2.0 * product_bxn, 0.0)


def gram_rows(a_bxD: Array, b_nxD: Array, same_bxn: Array, kernel: str, gamma: Array | float) -> Array:
    """Rows of a Gram matrix.

    Args:
      a_bxD, b_nxD: float32.
      same_bxn: bool, true where both sides are the same row, whose distance is exactly 0.
      kernel: "rbf": exp(-gamma ||a - b||²), IBKD eq. 7 with the minus and the square that its print lost. "imq": the inverse
        multiquadric (||a - b||² + gamma)^(-1/2). "linear": a · b, of rows of unit length the cosine.
      gamma: of rbf and imq.

    Returns: float32 [b, n].
    """
    if kernel == "linear":
        return jnp.dot(a_bxD, b_nxD.T, precision=HIGHEST)
    distance_bxn = jnp.where(same_bxn, 0.0, squared_distances(a_bxD, b_nxD))
    return jnp.exp(-gamma * distance_bxn) if kernel == "rbf" else jax.lax.rsqrt(distance_bxn + gamma)


def hsic(
    x_nxD: Array,
    s_nxE: Array,
    *,
    kernel: str = "rbf",
    gamma: float = 0.5,
    estimator: str = "biased",
    unit_rows: bool = False,
    mask_n: Array | None = None,
    numbers_n: Array | None = None,
    block: int = 0,
) -> Hsic:
    """HSIC(X, S) with its diagnostics.

    Args:
      x_nxD, s_nxE: the two sides of the same n rows, of any floating type.
      kernel: of KERNELS (gram_rows).
      gamma: of rbf and imq. 0: the median heuristic, for each side its own (median_gamma).
      estimator: "biased": tr(K_X H K_S H) / n² (IBKD eq. 6). "n_minus_1": over (n - 1)², as its authors' code. "unbiased": of zero
        diagonals, which may be negative.
      unit_rows: rows to length one first; the linear kernel always does.
      mask_n: true for rows that count; None: all.
      numbers_n: as median_distance has them.
      block: Gram rows at a time (embedding.over_row_blocks); 0: all.

    Returns: Hsic, scalars of float32; the diagnostics have no gradient.

    Raises: ValueError for a name that is not listed, and for fewer rows than the estimator needs.

    Source: Gretton et al. 2005; unbiased: Song et al. 2012, eq. 4.
    """
    if kernel not in KERNELS or estimator not in ESTIMATORS:
        raise ValueError(f"kernel {kernel!r} of {KERNELS}, estimator {estimator!r} of {ESTIMATORS}")
    if x_nxD.shape[0] < FEWEST_ROWS[estimator]:
        raise ValueError(f"{x_nxD.shape[0]} rows: the {estimator} estimator needs at least {FEWEST_ROWS[estimator]}")
    w_n = jnp.ones(x_nxD.shape[0]) if mask_n is None else mask_n.astype(jnp.float32)
    unit_rows = unit_rows or kernel == "linear"
    x_nxD, s_nxE = (centre(side, w_n, unit_rows, about_mean=kernel != "linear") for side in (x_nxD, s_nxE))
    gamma_x, gamma_s = (gamma or median_gamma(side, mask_n, kernel, numbers_n) for side in (x_nxD, s_nxE))
    row = _row_sums(x_nxD, s_nxE, w_n, kernel, gamma_x, gamma_s, block)
    total = {name: values_n.sum() for name, values_n in row.items()}
    n = w_n.sum()
    if estimator == "unbiased":
        value = _unbiased(row, total, n, "xs")
    else:
        value = _centred_trace(row, total, w_n, n) / (n**2 if estimator == "biased" else (n - 1.0) ** 2)
    ranks, means = [_rank(total, side) for side in "xs"], [_off_diagonal(total, side, n) for side in "xs"]
    diagnostics = (*means, *ranks, _cka(row, total, n))
    return Hsic(value, *map(jax.lax.stop_gradient, diagnostics))


def centre(x_nxD: Array, w_n: Array, unit_rows: bool, about_mean: bool) -> Array:
    """Rows as the kernels take them. About their mean distances do not change, and small numbers keep their digits.

    Args:
      x_nxD: of any floating type.
      w_n: float32, 1 for rows that count and 0 for the others, which become zero.
      unit_rows: scale rows to length one.
      about_mean: take the mean of the rows that count off.

    Returns: float32 [n, D].
    """
    # Whatever stands in rows that do not count, it must not meet a product: 0 times inf is NaN.
    x_nxD = jnp.where(w_n[:, None] > 0, x_nxD.astype(jnp.float32), 0.0)
    x_nxD = unit(x_nxD) if unit_rows else x_nxD
    return x_nxD - (x_nxD * w_n[:, None]).sum(0) / w_n.sum() if about_mean else x_nxD


def median_gamma(x_nxD: Array, mask_n: Array | None, kernel: str, numbers_n: Array | None = None) -> Array | float:
    """gamma by the median heuristic, m being the median squared distance.

    Args:
      x_nxD: float32.
      mask_n: true for rows that count; None: all.
      kernel: "rbf": 1 / (2 m). "imq": m. "linear", which has no gamma: 0.
      numbers_n: as median_distance has them.

    Returns: scalar, float32.
    """
    if kernel == "linear":
        return 0.0
    median = median_distance(x_nxD, mask_n, numbers_n=numbers_n)
    return 0.5 / median if kernel == "rbf" else median


def _row_sums(
    x_nxD: Array, s_nxE: Array, w_n: Array, kernel: str, gamma_x: Array | float, gamma_s: Array | float, block: int
) -> dict[str, Array]:
    """Sums over each row of K_X ("x"), K_S ("s"), their product ("xs") and squares ("xx", "ss"), and both diagonals: [n] each."""
    index_n = jnp.arange(x_nxD.shape[0])

    def sums(rows: dict[str, Array]) -> dict[str, Array]:
        same_bxn = rows["index"][:, None] == index_n
        kx = gram_rows(rows["x"], x_nxD, same_bxn, kernel, gamma_x)
        ks = gram_rows(rows["s"], s_nxE, same_bxn, kernel, gamma_s)
        weight_bxn = rows["w"][:, None] * w_n
        diagonal_x, diagonal_s = ((jnp.where(same_bxn, k, 0.0) * weight_bxn).sum(1) for k in (kx, ks))
        return {
            "x": (kx * weight_bxn).sum(1),
            "s": (ks * weight_bxn).sum(1),
            "xs": (kx * ks * weight_bxn).sum(1),
            "xx": (kx * kx * weight_bxn).sum(1),
            "ss": (ks * ks * weight_bxn).sum(1),
            "diagonal_x": diagonal_x,
            "diagonal_s": diagonal_s,
        }

    return over_row_blocks(sums, {"x": x_nxD, "s": s_nxE, "w": w_n, "index": index_n}, block)


def _unbiased(row: dict[str, Array], total: dict[str, Array], n: Array, sides: str) -> Array:
    """Song et al. 2012, eq. 4: (tr K~L~ + 1ᵀK~1 1ᵀL~1 / ((n-1)(n-2)) - 2 1ᵀK~L~1 / (n-2)) / (n(n-3)), K~ and L~ of zero diagonals; K and L
    are K_X and K_S, or one of them twice."""
    a, b = sides[0], sides[1]
    off_a_n, off_b_n = (row[side] - row[f"diagonal_{side}"] for side in (a, b))
    trace = total[sides] - (row[f"diagonal_{a}"] * row[f"diagonal_{b}"]).sum()
    both = off_a_n.sum() * off_b_n.sum() / ((n - 1.0) * (n - 2.0))
    return (trace + both - 2.0 / (n - 2.0) * (off_a_n * off_b_n).sum()) / (n * (n - 3.0))


def _centred_trace(row: dict[str, Array], total: dict[str, Array], w_n: Array, n: Array) -> Array:
    """tr(K_X H K_S H) of IBKD eq. 6, with row means taken off, which cancels less than the expanded sums do."""
    mean_x_n, mean_s_n = (row[side] / n - w_n * total[side] / n**2 for side in "xs")
    return total["xs"] - total["x"] * total["s"] / n**2 - 2.0 * n * (mean_x_n * mean_s_n).sum()


def _cka(row: dict[str, Array], total: dict[str, Array], n: Array) -> Array:
    """Centred kernel alignment; 0, which says nothing then, where a Gram matrix has nearly equal entries or is nearly a multiple of the
    identity, of which rounding alone is left, and for fewer rows than the unbiased estimator needs. The biased one would call two
    matrices near the identity the same, whatever they are of."""
    both, of_x, of_s = (_unbiased(row, total, n, sides) for sides in ("xs", "xx", "ss"))
    enough = n >= FEWEST_ROWS["unbiased"]
    alive = enough & (of_x > 1e-5 * total["xx"] / n**2) & (of_s > 1e-5 * total["ss"] / n**2)
    return jnp.where(alive, both / jnp.sqrt(jnp.where(alive, of_x * of_s, 1.0)), 0.0)


def _off_diagonal(total: dict[str, Array], side: str, n: Array) -> Array:
    return (total[side] - total[f"diagonal_{side}"]) / jnp.maximum(n * (n - 1.0), 1.0)


def _rank(total: dict[str, Array], side: str) -> Array:
    return jnp.square(total[f"diagonal_{side}"]) / jnp.maximum(total[side * 2], 1e-12)
