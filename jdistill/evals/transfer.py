"""What frozen vectors know of a task: a logistic regression on them (SentEval), and for pairs the cosine alone."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from jdistill.data.sets.tasks import Split, Task
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.classify import classification_scores
from jdistill.evals.pair_labels import pair_scores
from jdistill.retrieval.index import unit_rows

PENALTIES = (0.25, 1.0, 4.0, 16.0, 64.0)  # C, chosen on dev
USUAL = 1.0  # where no training row can be spared to choose it by
OF_TRAIN = 0.1  # on which it is chosen where dev is what is scored


def evaluate_transfer(encoder: TextEncoder, task: Task) -> dict[str, Any]:
    """The task's metrics on its test split (dev where there is none), in percent, by a logistic regression fitted to the training
    split; "split": test or dev, which of them that is; "C": its penalty, chosen on dev, or, where that is scored, on a tenth of the
    training split. Pairs are seen as |u - v| and u * v; "cosine": evals.pair_labels of their cosines.
    """
    test = task.dev if task.test is None else task.test
    (train_x, train_cos), (dev_x, _), (test_x, test_cos) = (
        _features(encoder, rows) for rows in (task.train, task.dev, test)
    )
    if task.test is None:
        labels = np.asarray(task.train.labels)
        held, left = _held_and_left(labels)
        C = USUAL
        if len(held):
            _, C = fit_regression(train_x[left], labels[left], train_x[held], labels[held])
        model = _regression(C, train_x, labels)
    else:
        model, C = fit_regression(train_x, task.train.labels, dev_x, task.dev.labels)
    predicted = model.predict(test_x)
    figures: dict[str, Any] = classification_scores(test.labels, predicted, task.metrics)
    figures |= {"split": "dev" if task.test is None else "test", "C": C}
    if train_cos is not None and test_cos is not None and len(task.labels) == 2:
        figures["cosine"] = pair_scores(train_cos, task.train.labels == 1, test_cos, test.labels == 1)
    return figures


def _held_and_left(labels_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a tenth drawn at random, and the rest, which has a row of every label; the tenth is empty where none can be spared."""
    order = np.random.default_rng(0).permutation(len(labels_N))
    held, left = np.split(order, [max(1, round(OF_TRAIN * len(order)))])
    lacking, first = np.unique(labels_N[held], return_index=True)
    needed = first[~np.isin(lacking, labels_N[left])]
    return np.delete(held, needed), np.concatenate([left, held[needed]])


def fit_regression(
    train_NxF: np.ndarray, train_labels_N: np.ndarray, dev_nxF: np.ndarray, dev_labels_n: np.ndarray
) -> tuple[Pipeline, float]:
    """The logistic regression on standardised features that is best on dev, and its penalty's C before it is divided by sqrt(N)."""
    fitted = {}
    for C in PENALTIES:
        model = _regression(C, train_NxF, train_labels_N)
        fitted[C] = model, float((model.predict(dev_nxF) == dev_labels_n).mean())
    C = max(fitted, key=lambda c: fitted[c][1])
    return fitted[C][0], C


def _regression(C: float, train_NxF: np.ndarray, train_labels_N: np.ndarray) -> Pipeline:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few hundred steps decide the third digit at most
        regression = LogisticRegression(C=C / len(train_NxF) ** 0.5, max_iter=300)
        return make_pipeline(StandardScaler(), regression).fit(train_NxF, train_labels_N)


def _features(encoder: TextEncoder, rows: Split) -> tuple[np.ndarray, np.ndarray | None]:
    """[N, F] that the regression reads, and the cosines [N] of pairs."""
    u = encoder.encode(rows.texts, show_progress=True)
    if rows.others is None:
        return u, None
    v = encoder.encode(rows.others, show_progress=True)
    return np.concatenate([np.abs(u - v), u * v], axis=1), (unit_rows(u) * unit_rows(v)).sum(1)
