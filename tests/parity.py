"""How far apart two computations of the same thing may lie: a bound from float32's rounding, the numbers' size and the depth.

Why it is relative: a float keeps about seven digits of a number, whatever its size. Logits of 30 carry thirty times the error of
a cosine, so one absolute bound is too tight for the first and too loose for the second.

Why it grows with the square root of the work: an operation rounds its result by a random share of it of at most eps / 2, of
standard deviation 0.29 eps. A sum of n products rounds 2 n times, on partial sums that grow; errors of random signs add as a
random walk does, to about 0.35 eps sqrt(n) of the result. A layer of a transformer has some six such sums in a chain (key or
query, scores, mixture, output, up, down), and each of L layers hands on what was lost and adds its own: 0.35 sqrt(6) sqrt(L) =
0.87 eps sqrt(n L). Of a hundred thousand errors the largest lies at 4.4 standard deviations, which makes

    bound = eps sqrt(n L) largest        largest: 4 times the root mean square of the reference

Nothing in it was measured. Libraries that sum in blocks, or multiply and add in one operation, round less often and lie several
times below; one that sums term by term may come near. test_parity.py and test_gguf.py hold that small defects of real models
(another epsilon, a RoPE base 1 % off, tanh where erf belongs) lie far above.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.stats import rankdata


def rounding(terms: int, depth: int = 1, dtype: str = "float32") -> float:
    """The bound as a share of the largest number.

    Args:
      terms: the length n of the longest sum, in a transformer that over the feed-forward width.
      depth: how many layers L stand one after another; of both sides together where neither is in float64.
      dtype: what the less precise of the two computed in.
    """
    return float(jnp.finfo(dtype).eps) * float(terms * depth) ** 0.5


def excess(
    found: Any,
    reference: Any,
    terms: int,
    depth: int = 1,
    *,
    dtype: str = "float32",
    largest: Any = None,
) -> float:
    """The largest difference as a multiple of the bound: above 1 it is more than rounding.

    Args:
      found: numbers of any shape.
      reference: the same numbers computed otherwise, best in float64, so that one side alone rounds.
      terms, depth, dtype: as of rounding().
      largest: a number, or an array that broadcasts: the largest of the numbers that were added, where they cancel and leave a
        smaller reference, or where a few are hundreds of times as large as the rest; None: 4 times the reference's root mean square.

    Returns: infinity where either side holds NaN.
    """
    found, reference = np.asarray(found, np.float64), np.asarray(reference, np.float64)
    assert found.shape == reference.shape, f"shape {found.shape}, and the reference's is {reference.shape}"
    assert found.size, "nothing to compare"
    if largest is None:
        largest = 4 * np.sqrt(np.square(reference).mean())
    error, bound = np.abs(found - reference), rounding(terms, depth, dtype) * np.asarray(largest, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error == 0, 0.0, error / bound)
    return float("inf") if np.isnan(share).any() else float(share.max())


def moved_by_rounding(scores: np.ndarray, gold: np.ndarray, error: float) -> float:
    """How far Spearman's correlation may move where those change places whose scores differ by less than both may err.

    Two that change places move the sum of squared differences of ranks by twice their gold scores' difference in rank, and the correlation
    by 6 / (n^3 - n) of that.

    Args:
      scores, gold: [n].
      error: of a score.
    """
    order = np.argsort(scores)
    ordered, ranks = scores[order].astype(np.float64), rankdata(gold)[order]
    ends = np.searchsorted(ordered, ordered + 2 * error)
    swaps = sum(float(np.abs(ranks[i + 1 : end] - ranks[i]).sum()) for i, end in enumerate(ends))
    return 6 * 2 * swaps / (len(gold) ** 3 - len(gold))


def assert_close(found: Any, reference: Any, terms: int, depth: int = 1, *, what: object = "", **more: Any) -> None:
    """Fails where the two differ by more than rounding explains; arguments are those of excess().

    With JDISTILL_PARITY_REPORT=FILE each comparison adds a line to FILE: its share of the bound, the test, `what`, the type, and the
    largest difference as a share of the reference's largest number.
    """
    share = excess(found, reference, terms, depth, **more)
    exact = np.asarray(reference, np.float64)
    difference = np.abs(np.asarray(found, np.float64) - exact).max()
    if report := os.environ.get("JDISTILL_PARITY_REPORT"):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
        relative = difference / (np.abs(exact).max() or 1.0)
        with Path(report).open("a") as file:
            file.write(f"{share:.3f}\t{test}\t{what}\t{more.get('dtype', 'float32')}\t{relative:.2e}\n")
    assert share <= 1, f"{what}: the largest difference, {difference:.3g}, is {share:.3g} times what rounding explains"
