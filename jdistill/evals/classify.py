"""Accuracy and F1 of predicted labels, in percent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def classification_scores(labels: np.ndarray, predicted: np.ndarray, metrics: Sequence[str]) -> dict[str, float]:
    """labels, predicted: int [N]. metrics: accuracy, and f1, of label 1 in a task of two. In percent."""
    from sklearn.metrics import accuracy_score, f1_score  # here, since its import takes a second

    scores = {"accuracy": 100 * float(accuracy_score(labels, predicted))}
    if "f1" in metrics:
        scores["f1"] = 100 * float(f1_score(labels, predicted, pos_label=1, zero_division=0.0))
    return scores
