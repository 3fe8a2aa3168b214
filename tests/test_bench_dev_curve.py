"""bench/dev_curve.py: what it reads of a run's log, and what it says of a folder that has none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import dev_curve

from configs import ibkd
from jdistill.core.errors import UserError


def run_of(folder: Path, *lines: dict[str, float]) -> Path:
    cfg = ibkd.get_config()
    cfg.update({"teacher": "MODEL", "batch_size": 7})
    (folder / "distil").mkdir(parents=True)
    (folder / "config.json").write_text(cfg.to_json())
    (folder / "distil" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_each_checkpoint_has_its_dev_figures_and_the_loss_before_it(tmp_path: Path) -> None:
    run = run_of(
        tmp_path / "runs" / "a",
        {"step": 2, "loss": 3.0, "lr": 0.1},
        {"step": 3, "dev/pairs": 70.0, "dev/score": 70.0},
        {"step": 4, "loss": 2.0},
        {"step": 4, "dev/pairs": 71.5, "dev/score": 71.5},
        {"step": 6, "loss": 1.0},
    )
    command = [sys.executable, ROOT / "bench" / "dev_curve.py", "--config", ROOT / "configs" / "ibkd.py", run]
    told = subprocess.run(
        command,
        env={"BENCH_RESULTS": str(tmp_path / "results"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines()[1] == "run=runs/a stage=distil step=4 loss=2.0 pairs=71.5 score=71.5"
    (kept,) = json.loads((tmp_path / "results" / "dev_curve.json").read_text())["runs"]
    assert [(row["step"], row["loss"], row["pairs"]) for row in kept["rows"]] == [(3, 3.0, 70.0), (4, 2.0, 71.5)]
    assert kept["changed"] == "--config.batch_size=7 --config.teacher=MODEL"


def test_a_run_without_dev_figures_is_named(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"step": 2, "loss": 3.0})
    with pytest.raises(UserError, match="metrics.jsonl has no dev figures"):
        dev_curve.points(run / "distil" / "metrics.jsonl")
    command = [
        sys.executable,
        ROOT / "bench" / "dev_curve.py",
        "--config",
        "configs/ibkd.py",
        tmp_path,
        "--stage",
        "no",
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2 and "has no no/metrics.jsonl" in told.stderr
