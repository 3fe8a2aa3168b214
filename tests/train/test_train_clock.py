"""Seconds of training: what the teacher takes to answer, at the first look at the data, is no part of them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from simtde_setting import setting

from configs import simtde as config_file
from jdistill.data.batching.batches import Batches
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
    _, seconds, steps = train(cfg, method, Data(batches, rows_of, "x", "texts"), tmp_path / "stage", lambda model: {})
    assert steps == 3 and looks > 0
    assert 0 < seconds < an_hour
