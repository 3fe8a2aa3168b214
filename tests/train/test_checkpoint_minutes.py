"""Checkpoints by the clock: a run that is killed long before its next regular one loses minutes, and ends as one that was not killed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from simtde_setting import setting

from configs import simtde as config_file
from jdistill.core import sharding
from jdistill.data.batching.batches import Batches
from jdistill.train import metrics, signals
from jdistill.train.checkpoint import Checkpoints, steps_in
from jdistill.train.dataset import Data
from jdistill.train.loop import train
from jdistill.train.signals import Agreement

STEPS, EVERY = 14, 6


class Killed(Exception):
    """Stands for a kill: nothing is saved on its way out."""


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, kill_at: int = 0, writing: float = 0.0
) -> tuple[np.ndarray, list[int], list[int]]:
    """The parameters at the end as one vector, the steps that were made and those that were saved; a step takes a minute, and a save waits
    for `writing` minutes."""
    method, batch = setting("", 8, **{"student.layers": 1})
    cfg = config_file.get_config()
    cfg.batch_size, cfg.max_steps, cfg.checkpoint_every, cfg.checkpoint_minutes = 8, STEPS, EVERY, minutes
    clock, advance, save = SimpleNamespace(now=0.0), metrics.Recorder.advance, Checkpoints.save
    made: list[int] = []
    saved: list[int] = []

    def a_minute(self: metrics.Recorder, window: Any, steps: int) -> None:
        clock.now += 60.0
        made.append(steps)
        if kill_at and len(made) == kill_at:
            raise Killed
        advance(self, window, steps)

    def slowly(self: Checkpoints, step: int, *more: Any) -> None:
        clock.now += 60.0 * writing
        saved.append(step)
        save(self, step, *more)

    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(metrics.Recorder, "advance", a_minute)
    monkeypatch.setattr(Checkpoints, "save", slowly)
    try:
        data = Data(Batches(np.full(64, 10), 8, np.array([16]), 0), lambda step, width, rows: batch, "x", "texts")
        params, *_ = train(cfg, method, data, folder, lambda params: {"score": 1.0})
    finally:
        monkeypatch.undo()
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)]), made, saved


def test_a_killed_run_goes_on_from_the_last_minutes_and_ends_as_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, *_ = run(tmp_path / "plain", monkeypatch, 0.0)
    with pytest.raises(Killed):
        run(tmp_path / "killed", monkeypatch, 4.0, kill_at=12)
    # The scored one of step 6 set the clock back, so that the next was due at 10; that of step 4 was no longer the newest.
    assert steps_in(tmp_path / "killed" / "checkpoints") == [6, 10]
    again, made, _ = run(tmp_path / "killed", monkeypatch, 4.0)
    assert len(made) == STEPS - 10
    np.testing.assert_array_equal(again, plain)
    kept = [steps_in(tmp_path / name / "checkpoints") for name in ("plain", "killed")]
    assert kept[0] == kept[1] == [12, 14]


def test_a_disk_that_takes_longer_than_the_minutes_gets_no_more_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock begins where writing does, else each step would wait for a save of its own."""
    assert run(tmp_path / "fast", monkeypatch, 4.0)[2] == [4, 6, 10, 12, 14]
    assert run(tmp_path / "slow", monkeypatch, 4.0, writing=6.0)[2] == [4, 6, 10, 12, 14]


def test_without_minutes_none_is_saved_between_regular_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Killed):
        run(tmp_path, monkeypatch, 0.0, kill_at=5)
    assert steps_in(tmp_path / "checkpoints") == []


@pytest.mark.parametrize(("of_another", "due_at"), [(0, 70), (20, 20)])
def test_several_processes_save_together_by_whose_clock_is_first(
    of_another: int, due_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask at steps 1, 10, 20, …; this one's minute is over at 67, another's at of_another."""
    now, asked = 0.0, []

    def any_process(flag: bool) -> bool:
        asked.append(done)
        return flag or (done == of_another and asked.count(done) == 3)  # slow, stopped, and then due

    monkeypatch.setattr(sharding, "process_count", lambda: 2)
    monkeypatch.setattr(sharding, "any_process", any_process)
    monkeypatch.setattr(signals.time, "monotonic", lambda: now)
    agreement, due = Agreement(0, minutes=1.0), []
    for done in range(1, due_at + 60):
        now += 0.9
        assert not agreement.reached([], done)
        if agreement.save_due(done):
            due.append(done)
            agreement.saved()
    assert set(asked) == {1, *range(10, due_at + 60, 10)} and due == [due_at]
