"""Labelled pairs by a threshold, against a loop over all of them; logistic regression on frozen vectors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bilstm_setting import flavour

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


def by_counting(called: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The definitions of accuracy, precision, recall and F1 in percent, a share of nothing being 0."""
    hits = sum(1 for c, y in zip(called, labels, strict=True) if c and y)
    right = sum(1 for c, y in zip(called, labels, strict=True) if c == y)
    precision, recall = hits / max(sum(called), 1), hits / max(sum(labels), 1)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    found = {"accuracy": right / len(labels), "precision": precision, "recall": recall, "f1": f1}
    return {name: 100 * value for name, value in found.items()}


def precision_at_each_positive(scores: np.ndarray, labels: np.ndarray) -> float:
    """Average precision in percent: at the score of each positive, the share of positives among the pairs of at least that score."""
    return 100 * float(np.mean([labels[scores >= at].mean() for at in scores[labels]]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [False, True])
def test_scores_of_pairs_are_those_of_counting(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    train_labels, labels = rng.random(80) < 0.5, rng.random(100) < 0.4
    train_scores, scores = rng.normal(train_labels, 0.8), rng.normal(labels, 0.8)
    if ties:
        train_scores, scores = train_scores.round(1), scores.round(1)
    found = pair_scores(train_scores, train_labels, scores, labels)
    expected = by_counting(scores > found["threshold"], labels)
    expected |= {"ap": precision_at_each_positive(scores, labels), "prior": 100 * labels.mean()}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    assert found["threshold"] == best_threshold(train_scores, train_labels) and found["prior"] < found["ap"] < 100
    assert 0 < found["precision"] < 100 and 0 < found["recall"] < 100 and set(found) == {*expected, "threshold"}


def test_scores_of_float32_with_nothing_between_them_are_parted() -> None:
    scores, labels = np.array([0.2, 0.3, 0.99999994, 1, 1], np.float32), np.array([False] * 3 + [True] * 2)
    found = pair_scores(scores, labels, scores, labels)
    assert scores[2] < found["threshold"] < scores[3].astype(float) and found["f1"] == found["accuracy"] == 100


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.filterwarnings("error::sklearn.exceptions.UndefinedMetricWarning")
def test_pairs_of_which_none_is_called_positive_score_nothing(positive: bool) -> None:
    """All pairs lie below the threshold, and none, or all but the first, is a positive."""
    train_scores, train_labels = np.array([0.8, 0.9]), np.array([False, True])
    scores, labels = np.array([0.1, 0.2, 0.3]), np.array([False, True, True])
    found = pair_scores(
        train_scores, train_labels, scores if positive else scores[:1], labels if positive else labels[:1]
    )
    assert (found["precision"], found["recall"], found["f1"]) == (0, 0, 0)
    assert found["accuracy"] == pytest.approx(100 / 3 if positive else 100, abs=1e-9)


def test_frozen_vectors_know_the_word(tmp_path: Path, real_teacher: str, capsys: pytest.CaptureFixture[str]) -> None:
    flavour(tmp_path / "flavour", pairs=False)
    out = tmp_path / "results.json"
    flags = ["--transfer", "flavour", "--task_dir", str(tmp_path / "flavour"), "--out", str(out)]
    assert main(["--model", real_teacher, *flags]) == 0
    found = json.loads(out.read_text())["transfer"]["flavour"]
    assert found["accuracy"] > 80 and "cosine" not in found and found["split"] == "test"
    assert "Transfer, flavour, test\n" in capsys.readouterr().out
    assert main(["--model", real_teacher, "--transfer", "flavour"]) == 2


class Signs:
    """Vectors of which one number says whether the text holds lemon, and four say nothing."""

    def encode(self, texts: Sequence[str], show_progress: bool = False) -> np.ndarray:
        noise = np.random.default_rng(len(texts)).normal(0, 0.5, (len(texts), 4))
        return np.column_stack([[1.0 if "lemon" in text else -1.0 for text in texts], noise]).astype(np.float32)


def test_rows_of_the_hub_have_the_figures_of_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GLUE's rte numbers entailment 0 and not_entailment 1; by their names entailment is the positive one of the cosines."""
    datasets = pytest.importorskip("datasets")
    flavour(tmp_path / "rte", pairs=True)
    names = ["entailment", "not_entailment"]
    splits = {}
    for split, theirs in (("train", "train"), ("dev", "validation")):
        header, *lines = (tmp_path / "rte" / f"{split}.tsv").read_text().splitlines()
        rows = [line.rsplit("\t", 1) for line in lines]
        texts, labels = [row[0].split("\t") for row in rows], [1 - int(row[1]) for row in rows]
        (tmp_path / "rte" / f"{split}.tsv").write_text(
            "\n".join([header, *("\t".join([*pair, names[label]]) for pair, label in zip(texts, labels, strict=True))])
        )
        columns = {"sentence1": [a for a, _ in texts], "sentence2": [b for _, b in texts], "label": labels}
        splits[theirs] = datasets.Dataset.from_dict(columns).cast_column("label", datasets.ClassLabel(names=names))
    (tmp_path / "rte" / "test.tsv").unlink()
    monkeypatch.setattr("jdistill.data.text.hub.hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_: datasets.DatasetDict(splits))
    own, hub = (read_task("rte", source) for source in (str(tmp_path / "rte"), "owner/glue"))
    assert own.labels == hub.labels == ("not_entailment", "entailment")
    figures = evaluate_transfer(Signs(), own)  # type: ignore[arg-type]
    assert evaluate_transfer(Signs(), hub) == figures and figures["cosine"]["ap"] > 70  # type: ignore[arg-type]
    assert figures["split"] == "dev"


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


def test_where_dev_is_what_is_scored_the_penalty_is_chosen_without_it(tmp_path: Path) -> None:
    flavour(tmp_path / "flavour", pairs=False)
    task = replace(read_task("mine", str(tmp_path / "flavour")), test=None)
    turned = replace(task, dev=replace(task.dev, labels=1 - np.asarray(task.dev.labels)))
    found, of_turned = (evaluate_transfer(Signs(), each) for each in (task, turned))  # type: ignore[arg-type]
    assert found["split"] == of_turned["split"] == "dev" and found["C"] == of_turned["C"]
    assert found["accuracy"] == pytest.approx(100 - of_turned["accuracy"])


@pytest.mark.parametrize("others", [1, 2, 10, 19])
def test_a_label_of_one_row_is_left_to_be_fitted_to(tmp_path: Path, others: int) -> None:
    rows = "".join(f"text {i}\t0\n" for i in range(others)) + "lemon\t1\n"
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + rows)
    figures = evaluate_transfer(Signs(), read_task("mine", str(tmp_path)))  # type: ignore[arg-type]
    assert figures["split"] == "dev" and 0 <= figures["accuracy"] <= 100
