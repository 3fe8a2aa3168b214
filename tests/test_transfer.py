"""Labelled pairs by a threshold, against a loop over all of them; logistic regression on frozen vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score
from test_tasks import flavour

from jdistill.data.sets.tasks import read_task
from jdistill.evals.pair_labels import best_threshold, pair_scores
from jdistill.evals.transfer import evaluate_transfer
from jdistill.evaluate import main


@pytest.mark.parametrize("seed", range(6))
def test_the_threshold_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, 12, 40) / 4.0, rng.random(40) < 0.4  # with ties
    found = ((scores > best_threshold(scores, labels)) == labels).mean()
    every = [-1.0, *(np.unique(scores) + 0.1)]
    assert found == max(((scores > threshold) == labels).mean() for threshold in every)


@pytest.mark.parametrize("labels", [[True] * 4, [False] * 4])
def test_a_threshold_where_all_are_alike(labels: list[bool]) -> None:
    scores = np.array([0.1, 0.2, 0.2, 0.3])
    assert ((scores > best_threshold(scores, np.array(labels))) == labels).all()


def test_scores_of_pairs_are_scikit_learn_s() -> None:
    rng = np.random.default_rng(1)
    labels = rng.random(100) < 0.3
    scores = rng.random(100) + 0.5 * labels
    found = pair_scores(scores, labels, scores, labels)
    called = scores > found["threshold"]
    for name, function in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        assert found[name] == pytest.approx(100 * function(labels, called, zero_division=0.0))
    assert found["prior"] == 100 * labels.mean() and found["prior"] < found["ap"] <= 100


def test_frozen_vectors_know_the_word(tmp_path: Path, real_teacher: str) -> None:
    flavour(tmp_path / "flavour", pairs=False)
    out = tmp_path / "results.json"
    flags = ["--transfer", "flavour", "--task_dir", str(tmp_path / "flavour"), "--out", str(out)]
    assert main(["--model", real_teacher, *flags]) == 0
    found = json.loads(out.read_text())["transfer"]["flavour"]
    assert found["accuracy"] > 80 and "cosine" not in found
    assert main(["--model", real_teacher, "--transfer", "flavour"]) == 2


class Signs:
    """Vectors of which one number says whether the text holds lemon, and four say nothing."""

    def encode(self, texts: Sequence[str], show_progress: bool = False) -> np.ndarray:
        noise = np.random.default_rng(len(texts)).normal(0, 0.5, (len(texts), 4))
        return np.column_stack([[1.0 if "lemon" in text else -1.0 for text in texts], noise]).astype(np.float32)


def test_pairs_by_regression_and_by_cosine(tmp_path: Path) -> None:
    flavour(tmp_path / "flavour", pairs=True)
    task = read_task("mine", str(tmp_path / "flavour"))
    found = evaluate_transfer(Signs(), task)  # type: ignore[arg-type]  # all that is asked of an encoder here
    # The label is whether both sides hold lemon or neither does: no plane parts u and v, |u - v| and u * v do.
    assert found["accuracy"] == 100
    cosines = {}
    for name in ("train", "test"):
        rows = getattr(task, name)
        u, v = (Signs().encode(side) for side in (rows.texts, rows.others))
        cosines[name] = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1), rows.labels == 1
    expected = pair_scores(*cosines["train"], *cosines["test"])
    assert found["cosine"] == pytest.approx(expected) and expected["prior"] == 50
