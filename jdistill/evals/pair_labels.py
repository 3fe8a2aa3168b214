"""Labelled pairs told apart by a score: a threshold chosen on training pairs, and average precision beside that of a random order."""

from __future__ import annotations

import numpy as np


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The threshold of the highest accuracy: half way between two neighbouring scores, or beyond an end. labels: bool [N]."""
    order = np.argsort(scores, kind="stable")
    sorted_scores, positive = scores[order].astype(np.float64), labels[order].astype(int)
    # right[k]: rows told right when the k lowest are called negative. Equal scores cannot be parted.
    right = np.concatenate([[0], np.cumsum(1 - positive)]) + positive.sum() - np.concatenate([[0], np.cumsum(positive)])
    may_part = np.concatenate([[True], sorted_scores[1:] > sorted_scores[:-1], [True]])
    k = int(np.argmax(np.where(may_part, right, -1)))
    ends = np.concatenate([[sorted_scores[0] - 1.0], sorted_scores, [sorted_scores[-1] + 1.0]])
    return float((ends[k] + ends[k + 1]) / 2)


def pair_scores(
    train_scores: np.ndarray, train_labels: np.ndarray, scores: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """accuracy, f1, precision and recall at the threshold of the training pairs, ap, and prior, the share of positives, which is
    the ap of a random order on average: in percent; and the threshold. labels: bool, true for positives."""
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support  # here: its import takes a second

    threshold = best_threshold(train_scores, train_labels)
    # In float64: float32 may have no number between two scores.
    called, real = scores.astype(np.float64) > threshold, labels.astype(bool)
    precision, recall, f1, _ = precision_recall_fscore_support(real, called, average="binary", zero_division=0.0)
    shares = {
        "accuracy": accuracy_score(real, called),
        "f1": f1,
        "precision": precision,
        "recall": recall,
        "prior": real.mean(),
    }
    in_percent = {name: 100 * float(value) for name, value in shares.items()}
    return in_percent | {"ap": average_precision(scores, labels), "threshold": threshold}


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """In percent; labels: bool, true for positives."""
    from sklearn.metrics import average_precision_score

    return 100 * float(average_precision_score(labels.astype(bool), scores))
