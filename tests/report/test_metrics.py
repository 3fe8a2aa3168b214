"""A run's curves as they are read and drawn: a line cut short, spoilt lines, a repeated step, smoothing, the best point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_setting import line, make_run

from jdistill.report.charts import best_point, smooth
from jdistill.report.facts import read_metrics
from jdistill.report.run import write_report
from jdistill.report.tables import retention


def test_truncated_last_line(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", line(10) + line(20) + line(30)[:25])
    curves, bad = read_metrics(run / "distil" / "metrics.jsonl")
    assert bad == 1 and curves["loss"][0].tolist() == [10, 20]
    assert "Unreadable lines skipped in distil/metrics.jsonl: 1." in write_report(run).read_text("utf-8")


def test_spoilt_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'7\n[1]\nnull\n{"loss": 1}\n{"step": 1.5, "loss": 1}\n\xff\xfe\n\n{"step": 5, "loss": "high"}\n'
        + b'{"step": 6, "loss": 1'
        + b"0" * 400
        + b'}\n{"step": 7, "loss": 2, "lr": true}\n'
    )
    curves, bad = read_metrics(path)
    assert bad == 7 and list(curves) == ["loss"]
    assert curves["loss"][0].tolist() == [7] and curves["loss"][1].tolist() == [2.0]


def test_a_repeated_step_takes_the_later_value(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(10) + line(20) + line(30) + '{"step": 20, "dev/x": 0.7}\n' + line(20, loss=7.0) + line(5))
    curves, bad = read_metrics(path)
    steps, values = curves["loss"]
    assert bad == 0 and steps.tolist() == [5, 10, 20, 30] and values.tolist() == [0.2, 0.1, 7.0, 1 / 30]
    assert curves["dev/x"][1].tolist() == [0.7]  # the evaluation of that step stays


def test_retention_smooth_and_best() -> None:
    assert retention(78.4, 78.87) == pytest.approx(99.40408)
    assert retention(1.0, 0.0) is None and retention(float("nan"), 1.0) is None and retention("3", 1.0) is None
    noisy = np.full(400, 3.0)
    noisy[50], noisy[200:210] = np.nan, np.tile([1.0, 5.0], 5)
    smoothed = smooth(noisy)
    assert smoothed.shape == (400,) and np.abs(smoothed - 3).max() < 0.2 and smoothed[50] == 3
    assert np.isnan(smooth(np.array([np.nan]))).all() and smooth(np.array([2.0])).tolist() == [2.0]
    exploded = np.full(400, 2.0)
    exploded[[10, 12]] = 1e20, 1e30
    np.testing.assert_allclose(smooth(exploded)[[50, 200, 399]], 2)  # of other windows it takes nothing
    assert smooth(exploded)[11] > 1e28
    np.testing.assert_allclose(smooth(np.array([0.0, 0.0, 0.0, 3.0])), [0, 0, 0, 3])
    steps, values = np.array([1, 2, 3, 4]), np.array([0.2, 0.5, np.nan, np.inf])
    assert best_point("dev/spearman", steps, values) == (2, 0.5)
    assert best_point("dev/token_mse", steps, values) == (1, 0.2)
