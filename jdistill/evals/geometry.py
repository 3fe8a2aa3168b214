"""The shape of a model's vectors: alignment, uniformity (Wang & Isola 2020) and the covariance of their dimensions.

IBKD section 4.7, figures 4 and 5. Alignment and uniformity are lower for better vectors; both are of unit vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.data.sets.sts import StsSubset, sts_tasks
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.retrieval.index import unit_rows

POSITIVE_SCORE = 4.0  # pairs of STS-B (0 to 5) with a score from here on mean the same
COVARIANCE_SAMPLE = 10_000  # texts of the covariance, as in the paper
DISTANCE_ROWS = 2048


def alignment(x_NxD: np.ndarray, y_NxD: np.ndarray) -> float:
    """Mean ||x - y||² over positive pairs, rows scaled to unit length."""
    return float(np.square(unit_rows(x_NxD).astype(np.float64) - unit_rows(y_NxD)).sum(1).mean())


def uniformity(x_NxD: np.ndarray, t: float = 2.0) -> float:
    """log mean exp(-t ||x_i - x_j||²) over all pairs i < j, rows scaled to unit length; in blocks of rows."""
    x = unit_rows(x_NxD)
    n, total = len(x), 0.0
    if n < 2:
        raise UserError(f"uniformity needs at least 2 texts, not {n}")
    for start in range(0, n, DISTANCE_ROWS):
        distance = np.maximum(2.0 - 2.0 * (x[start : start + DISTANCE_ROWS] @ x.T).astype(np.float64), 0.0)
        near = np.exp(-t * distance)
        total += float(near.sum() - np.trace(near, offset=start))  # a vector of zeros has a distance to itself
    return float(np.log(total / (n * (n - 1))))


def covariance(x_NxD: np.ndarray) -> np.ndarray:
    """Covariance of the dimensions of unit rows, times D so that isotropic vectors have 1 on the diagonal: float64 [D, D]."""
    x = unit_rows(x_NxD).astype(np.float64)
    if len(x) < 2:
        raise UserError(f"the covariance of vectors needs at least 2 texts, not {len(x)}")
    return x.shape[1] * np.cov(x, rowvar=False)


def mean_off_diagonal(matrix_DxD: np.ndarray) -> float:
    """Mean absolute value off the diagonal."""
    D = len(matrix_DxD)
    return float((np.abs(matrix_DxD).sum() - np.abs(np.diag(matrix_DxD)).sum()) / (D * (D - 1)))


@dataclass(frozen=True)
class Geometry:
    """alignment, uniformity: on STS-B. covariance: float64 [D, D], see there."""

    alignment: float
    uniformity: float
    covariance: np.ndarray

    @property
    def figures(self) -> dict[str, float]:
        """What results.json holds: alignment, uniformity, and the mean absolute covariance off the diagonal."""
        return {
            "alignment": self.alignment,
            "uniformity": self.uniformity,
            "off_diagonal": mean_off_diagonal(self.covariance),
        }


def pairs_alike(senteval: Path) -> tuple[StsSubset, np.ndarray]:
    """STS-B's test set, and which of its pairs mean the same (bool [n]).

    Raises: UserError where the folder has no STS-B, or none of its pairs mean the same.
    """
    stsb = [task for task in sts_tasks(senteval) if task.name == "STS-B"]
    if not stsb:
        raise UserError(f"{senteval} has no STS-B, which alignment and uniformity are measured on")
    (pairs,) = stsb[0].subsets
    alike = pairs.gold >= POSITIVE_SCORE
    if not alike.any():
        raise UserError(
            f"{senteval}: no pair of STS-B's test set has a score of {POSITIVE_SCORE:g} or more, and alignment is measured on those; "
            f"the highest of {len(pairs.gold)} is {pairs.gold.max():g}"
        )
    return pairs, alike


def evaluate_geometry(encoder: TextEncoder, senteval: Path, texts: list[str]) -> Geometry:
    """Alignment and uniformity on STS-B's test set, covariance over the first 10,000 `texts`. Raises UserError as pairs_alike does, and
    for fewer than 2 texts."""
    pairs, positive = pairs_alike(senteval)
    left, right = encoder.encode(pairs.left), encoder.encode(pairs.right)
    return Geometry(
        alignment(left[positive], right[positive]),
        uniformity(np.concatenate([left, right])),
        covariance(encoder.encode(texts[:COVARIANCE_SAMPLE], show_progress=True)),
    )
