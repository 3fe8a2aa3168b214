"""Seconds and rates of training: what the teacher takes to answer at the first look is no part of them, a checkpoint none of a rate."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from simtde_setting import setting

from configs import simtde as config_file
from jdistill.data.batching.batches import Batches
from jdistill.train import metrics
from jdistill.train.dataset import Data
from jdistill.train.loop import train


def test_the_teachers_answers_are_no_part_of_the_training_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = setting("", 8, **{"student.layers": 1})
    cfg = config_file.get_config()
    cfg.batch_size, cfg.max_steps, cfg.log_every = 8, 3, 1
    real, looks, an_hour = time.monotonic, 0, 3600.0

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        nonlocal looks
        looks += 1
        return batch

    monkeypatch.setattr(time, "monotonic", lambda: real() + an_hour * (looks > 0))
    batches = Batches(np.full(64, 10), 8, np.array([16]), 0)
    _, seconds, steps, *_ = train(
        cfg, method, Data(batches, rows_of, "x", "texts"), tmp_path / "stage", lambda model: {}
    )
    assert steps == 3 and looks > 0
    assert 0 < seconds < an_hour


def test_a_checkpoint_is_no_part_of_the_rate_and_takes_none_of_its_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes a second and a scoring an hour; checkpoints come in the midst of intervals."""
    method, batch = setting("", 8, **{"student.layers": 1})
    cfg = config_file.get_config()
    cfg.batch_size, cfg.max_steps, cfg.log_every, cfg.checkpoint_every = 8, 8, 4, 3
    clock, advance = SimpleNamespace(now=0.0), metrics.Recorder.advance

    def a_second(self: metrics.Recorder, window: list[dict[str, float]], steps: int) -> None:
        clock.now += 1.0
        advance(self, window, steps)

    def an_hour(params: object) -> dict[str, float]:
        clock.now += 3600.0
        return {"score": 1.0}

    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(metrics.Recorder, "advance", a_second)
    data = Data(Batches(np.full(64, 10), 8, np.array([16]), 0), lambda step, width, rows: batch, "x", "texts")
    train(cfg, method, data, tmp_path / "stage", an_hour)
    lines = [json.loads(line) for line in (tmp_path / "stage" / "metrics.jsonl").read_text().splitlines()]
    rates = {line["step"]: line["sentences_per_s"] for line in lines if "sentences_per_s" in line}
    assert rates == {4: 8.0, 8: 8.0} and clock.now > 3 * 3600
