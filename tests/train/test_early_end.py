"""Patience: a dev score that stands still ends a stage, at the same step whether it was interrupted or not."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from simtde_setting import config, random_tokens, small_teacher, start

from jdistill.core.types import Tree
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.texts import text_batches
from jdistill.methods import simtde
from jdistill.train import loop
from jdistill.train.checkpoint import Checkpoints
from jdistill.train.early_end import BETTER_AT_KEY, GiveUp
from jdistill.train.loop import train
from jdistill.train.sealed import DIGEST_KEY, SEAL_KEY

TEXTS, STEPS, EVERY = 40, 16, 2


def ended_at(
    folder: Path, score: Callable[[Tree], dict[str, float]], patience: int, give_up: GiveUp | None = None
) -> int:
    """The step at which a stage ended that keeps its newest checkpoint and the best."""
    keys = {"student.layers": 1, "max_steps": STEPS, "batch_size": 8, "checkpoint_every": EVERY, "keep_last": 1}
    cfg = config("", **keys | {"patience": patience, "packed": False})
    tokens = random_tokens(TEXTS)
    of_texts = start(small_teacher(), tokens)
    method, corpus = simtde.build(cfg, of_texts), Corpus([str(i) for i in range(TEXTS)], [], 0)
    data = text_batches(cfg, corpus, tokens, of_texts.embeddings, 0)
    folder.mkdir(exist_ok=True)
    return train(cfg, method, data, folder, score, give_up)[2]


def each_of(*scores: float) -> Callable[[Tree], dict[str, float]]:
    left = iter(scores)
    return lambda _: {"score": next(left)}


def test_equal_scores_are_no_better_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ended_at(tmp_path / "whole", each_of(1.0, 3.0, 3.0, 3.0, 3.0), patience=3) == 5 * EVERY
    with pytest.raises(StopIteration):
        ended_at(tmp_path / "resumed", each_of(1.0, 3.0, 3.0, 3.0), patience=3)
    assert ended_at(tmp_path / "resumed", each_of(3.0), patience=3) == 5 * EVERY
    with monkeypatch.context() as stage_is_over:  # where nothing is compiled, and nobody asked
        stage_is_over.setattr(loop, "compiling", None)
        assert ended_at(tmp_path / "resumed", each_of(), patience=3) == 5 * EVERY
    checkpoints = Checkpoints(tmp_path / "resumed" / "checkpoints", 1, EVERY)
    assert checkpoints.steps() == [5 * EVERY]  # of the equal ones the newest, the oldest of which is counted from
    checkpoints.close()


def test_a_run_of_before_goes_on_from_the_best_that_it_keeps(tmp_path: Path) -> None:
    with pytest.raises(StopIteration):
        ended_at(tmp_path, each_of(3.0, 1.0), patience=0)
    about = tmp_path / "checkpoints" / str(2 * EVERY) / "about" / "metadata"
    described = json.loads(about.read_text())
    assert described.pop(BETTER_AT_KEY) == EVERY
    about.write_text(json.dumps({key: value for key, value in described.items() if key not in (SEAL_KEY, DIGEST_KEY)}))
    assert ended_at(tmp_path, each_of(1.0, 2.0, 9.0, 9.0), patience=3) == 4 * EVERY


def test_a_stage_without_a_dev_score_says_that_patience_does_not_end_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "jdistill"):
        assert ended_at(tmp_path / "distil", lambda _: {}, patience=1) == STEPS
    assert caplog.text.count("--config.patience=1 does not end distil, which has no dev score") == 1


@pytest.mark.parametrize(("patience", "last"), [(0, STEPS), (2, 3 * EVERY)])
def test_who_compares_is_told_which_checkpoint_ends_the_stage_anyway(tmp_path: Path, patience: int, last: int) -> None:
    told: list[tuple[int, bool]] = []

    def give_up(step: int, score: float, last: bool = False) -> bool:
        told.append((step, last))
        return False

    ended_at(tmp_path, lambda _: {"score": 1.0}, patience, give_up)
    assert told == [(step, step == last) for step in range(EVERY, last + 1, EVERY)]


def test_a_training_that_was_to_be_given_up_when_a_kill_came_is_given_up(tmp_path: Path) -> None:
    """Its checkpoint was saved, and nobody noted why it ended."""
    told: list[tuple[int, bool]] = []

    def pruned(step: int, score: float, last: bool = False) -> bool:
        told.append((step, last))
        return step == 2 * EVERY

    def killed(step: int, score: float, last: bool = False) -> bool:
        return False

    with pytest.raises(StopIteration):
        ended_at(tmp_path, each_of(1.0, 2.0), 0, killed)
    assert ended_at(tmp_path, each_of(), 0, pruned) == 2 * EVERY and told == [(2 * EVERY, False)]
