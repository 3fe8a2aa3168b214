"""A model on a source of labelled pairs, such as C-MTEB/OCNLI: average precision beside its floor, by cosine and by the module."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jdistill.data.labelled_pairs import Pairs, read_pairs
from jdistill.encoder import TextEncoder
from jdistill.errors import UserError
from jdistill.evals.pair_labels import average_precision, pair_scores
from jdistill.index import unit_rows
from jdistill.models.pma import BRANCHES
from jdistill.pair_scorer import PairScorer, pair_vectors


class Labelled(NamedTuple):
    """name: of the source. figures: "cosine" and, of a model with an interaction module, "module" -> evals.pair_labels' figures, in
    percent, and "pairs", how many there are."""

    name: str
    figures: dict[str, dict[str, float]]


def evaluate_labelled(
    encoder: TextEncoder,
    source: str,
    branch: str,
    test_split: str = "",
    threshold_split: str = "",
    module: PairScorer | None = None,
) -> Labelled:
    """The figures of a source's pairs (data.labelled_pairs.read_pairs). branch: symmetric or asymmetric, the module's question.

    test_split: of a source with splits; where it has one alone, or none, empty. threshold_split: its pairs choose the threshold of
    accuracy, F1, precision and recall, of scores of which these are left out without; average precision needs none. Raises UserError for a
    split that there is not, the same for both, and pairs that are all positive or all negative.
    """
    key = branch
    pairs = read_pairs(source, key)
    test = _split(pairs, test_split, key, "test_split")
    train = _split(pairs, threshold_split, key, "threshold_split") if threshold_split else None
    if train is not None and test_split == threshold_split:
        raise UserError(f"--threshold_split={threshold_split} is the test split; a threshold is chosen on other pairs")
    if len(set(test.positive)) < 2:
        raise UserError(
            f"--{key}={source}: all {len(test)} pairs have the same label, so that nothing tells them apart"
        )
    figures: dict[str, dict[str, float]] = {}
    sides = [pair_vectors(encoder, of.queries, of.passages, True) for of in (train, test) if of is not None]
    for how in ("cosine",) if module is None else ("cosine", "module"):
        scores = [_scores(how, left, right, branch, module) for left, right in sides]
        if train is not None:
            found = pair_scores(scores[0], train.labels, scores[1], test.labels)
        else:
            found = {"ap": average_precision(scores[0], test.labels), "prior": 100 * float(np.mean(test.positive))}
        figures[how] = found | {"pairs": len(test)}
    return Labelled(Path(source).stem, figures)


def _split(pairs: Pairs, name: str, key: str, flag: str) -> Pairs:
    names = sorted(set(pairs.splits))
    if not name and len(names) == 1:
        return pairs
    if name not in names:
        raise UserError(f"--{key}: --{flag}={name or '(empty)'} is none of its splits {', '.join(names) or '(none)'}")
    return pairs.where([split == name for split in pairs.splits])


def _scores(how: str, left: np.ndarray, right: np.ndarray, branch: str, module: PairScorer | None) -> np.ndarray:
    if how == "module" and module is not None:
        return module.of_vectors(left, right, branch == BRANCHES[0])
    return np.einsum("nd,nd->n", unit_rows(left), unit_rows(right))
