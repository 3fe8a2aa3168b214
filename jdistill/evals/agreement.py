"""How far a student agrees with its teacher on held-out texts: the same cosines, order and neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from jdistill.core.progress import log
from jdistill.evals.sts import pearson, spearman
from jdistill.retrieval.index import unit_rows

NEIGHBOURS = 10
NEAR_PAIRS = 3  # of each text; as many random pairs are drawn
SCATTER = 1000  # pairs listed for the plot
FEWEST_RANKED = 3  # texts, of which there are pairs to rank
FEWEST_FOR_OVERLAP = 100  # texts, whose ten nearest share a tenth by chance; of eleven they are all others
COSINE_ROWS = 1000  # texts whose cosines with all others are held at once
SEED = 0  # one set of pairs for all checkpoints, so that their figures compare


def agreement(student: np.ndarray, teacher: np.ndarray) -> dict[str, Any]:
    """Figures of two models' vectors, [N, D_s] and [N, D_t], of the same N texts in the same order, of any length.

    "mean_cosine": of a text's two vectors; only where D_s = D_t, and beside it "constant_cosine": the most that one vector for all texts
    would have, which is that of the mean of the teacher's. "spearman", "pearson": x 100, of the two models'
    cosines over fixed pairs: each text with its 3 nearest by the teacher, and as many random ones, since almost all
    random pairs are unrelated; 0 where undefined, left out below FEWEST_RANKED texts. "top10_overlap": percent of a text's
    10 nearest that both models share; left out below FEWEST_FOR_OVERLAP texts. "pairs": at most 1,000 of those pairs as
    [teacher's cosine, student's cosine]. O(N^2) time. Raises UserError for NaN in a vector.
    """
    if len(student) != len(teacher):
        raise ValueError(f"{len(student)} student vectors for {len(teacher)} teacher vectors")
    u_NxS, v_NxT = unit_rows(student), unit_rows(teacher)
    texts = len(u_NxS)
    figures: dict[str, Any] = {}
    if u_NxS.shape[1] == v_NxT.shape[1]:
        figures["mean_cosine"] = float(np.mean(_cosines(u_NxS, v_NxT)))
        # The mean of v c over the texts is greatest for the unit c along the mean of v.
        figures["constant_cosine"] = float(np.linalg.norm(v_NxT.mean(0)))
    if texts < FEWEST_RANKED:
        log.warning("agreement with the teacher is measured on %d held-out texts: too few to mean anything", texts)
        return figures | {"pairs": []}
    near = nearest(v_NxT, NEIGHBOURS)
    left, right = _pairs(near)
    mine, theirs = _cosines(u_NxS[left], u_NxS[right]), _cosines(v_NxT[left], v_NxT[right])
    listed = np.random.default_rng(SEED).permutation(len(left))[:SCATTER]
    figures["spearman"] = spearman(mine, theirs)
    figures["pearson"] = pearson(mine, theirs)
    if texts >= FEWEST_FOR_OVERLAP:
        shared = (nearest(u_NxS, NEIGHBOURS)[:, :, None] == near[:, None, :]).any(axis=2)
        figures["top10_overlap"] = 100 * float(shared.mean())
    return figures | {"pairs": [[round(float(theirs[i]), 4), round(float(mine[i]), 4)] for i in listed]}


def nearest(unit_NxD: np.ndarray, k: int) -> np.ndarray:
    """The k rows nearest to each of N unit rows by cosine, itself left out, nearest first: int64 [N, min(k, N - 1)]."""
    k = min(k, len(unit_NxD) - 1)
    neighbours = np.empty((len(unit_NxD), k), np.int64)
    for start in range(0, len(unit_NxD), COSINE_ROWS):
        cosines = unit_NxD[start : start + COSINE_ROWS] @ unit_NxD.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        part = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(cosines, part, axis=1), axis=1, kind="stable")
        neighbours[start : start + COSINE_ROWS] = np.take_along_axis(part, order, axis=1)
    return neighbours


def _pairs(near_NxK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs left < right, int64 [P] each: each text's nearest, and as many drawn at random."""
    texts, k = len(near_NxK), min(NEAR_PAIRS, near_NxK.shape[1])
    rng = np.random.default_rng(SEED)
    drawn = rng.integers(0, texts, (texts * k, 2))
    close = np.stack([np.repeat(np.arange(texts), k), near_NxK[:, :k].ravel()], axis=1)
    both = np.concatenate([close, drawn[drawn[:, 0] != drawn[:, 1]]])
    distinct = np.unique(np.sort(both, axis=1), axis=0)
    return distinct[:, 0], distinct[:, 1]


def _cosines(u_NxD: np.ndarray, v_NxD: np.ndarray) -> np.ndarray:
    return np.einsum("nd,nd->n", u_NxD, v_NxD)
