"""Progress lines of training: each has the newest loss that was seen, however often the metrics are written."""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from simtde_setting import setting

from configs import simtde as config_file
from jdistill.data.batching.batches import Batches
from jdistill.train import metrics
from jdistill.train.dataset import Data
from jdistill.train.loop import train


@pytest.mark.parametrize("log_every", [1, 2, 100])
def test_a_loss_stands_in_every_line_once_one_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, log_every: int
) -> None:
    method, batch = setting("", 8, **{"student.layers": 1})
    cfg = config_file.get_config()
    cfg.batch_size, cfg.max_steps, cfg.log_every, cfg.checkpoint_every = 8, 9, log_every, 9
    monkeypatch.setattr(metrics, "Progress", partial(metrics.Progress, every_s=0.0))
    monkeypatch.setattr(metrics.log, "propagate", True)
    data = Data(Batches(np.full(64, 10), 8, np.array([16]), 0), lambda step, width, rows: batch, "x", "texts")
    with caplog.at_level(logging.INFO, logger="jdistill"):
        train(cfg, method, data, tmp_path / "stage", lambda params: {"score": 1.0})
    lines = [line for line in caplog.messages if re.search(r"\d of 9 steps", line)]
    assert len(lines) == 9
    assert all(
        re.search(r"loss \d+\.\d+$", line) for line in lines[3:]
    )  # two calls may be under way before one is looked at
