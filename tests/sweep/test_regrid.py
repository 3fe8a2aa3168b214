"""A grid of other values in the folder of a sweep: what ended stays and is not run again, what is new is run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from sweep_setting import config, hill, never

from jdistill.core.errors import UserError
from jdistill.sweep.command import Trainer, sweep
from jdistill.sweep.space import Space, parse_space

GiveUp = Callable[[int, float], bool]


def grid(*specs: str) -> Space:
    return parse_space(list(specs), config(), "grid")


def counted(begun: list[float], at: float = 9.0) -> Trainer:
    """hill, which notes the temperatures that it was called with, and is killed at one after its first score."""

    def trainer(cfg: ConfigDict, folder: Path, give_up: GiveUp) -> None:
        begun.append(cfg.loss.temperature)
        if cfg.loss.temperature == at:
            give_up(10, 60.0)
            raise KeyboardInterrupt
        hill(cfg, folder, give_up)

    return trainer


def test_a_wider_grid_runs_its_new_values_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun: list[float] = []
    first = sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=counted(begun))
    with caplog.at_level(logging.INFO, "jdistill"):
        wider = sweep(config(), tmp_path, grid("temperature=0.2,0.1,0.05,0.01"), trainer=counted(begun))
    assert begun == [0.05, 0.1, 0.2, 0.01]
    assert "loss.temperature is of CategoricalDistribution(choices=(0.2, 0.1, 0.05, 0.01)) now" in caplog.text
    assert [row for row in wider if row["params"]["loss.temperature"] in (0.05, 0.1)] == first
    assert [row["params"]["loss.temperature"] for row in wider] == [0.05, 0.01, 0.1, 0.2]
    assert sweep(config(), tmp_path, grid("temperature=0.2,0.1,0.05,0.01"), trainer=never) == wider
    assert json.loads((tmp_path / "sweep.json").read_text()) == wider
    assert (
        sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=never) == wider
    )  # what ended stays in the table


def test_a_wider_grid_of_two_keys_runs_what_is_new_of_both(tmp_path: Path) -> None:
    first = sweep(config(), tmp_path, grid("temperature=0.05,0.1", "seed=0"), trainer=hill)
    wider = sweep(config(), tmp_path, grid("temperature=0.05,0.2", "seed=0,1"), trainer=hill)
    settings = [(row["params"]["loss.temperature"], row["params"]["seed"]) for row in wider]
    assert sorted(settings) == [(0.05, 0), (0.05, 1), (0.1, 0), (0.2, 0), (0.2, 1)]
    assert all(row in wider for row in first)


def test_values_that_a_killed_sweep_had_before_it_are_not_run(tmp_path: Path) -> None:
    begun: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        sweep(config(), tmp_path, grid("temperature=0.05,0.1,0.2,0.5"), trainer=counted(begun, at=0.1))
    rows = sweep(config(), tmp_path, grid("temperature=0.05,0.2,0.3"), trainer=counted(begun))
    assert begun == [0.05, 0.1, 0.2, 0.3]  # neither 0.1, which was killed, nor 0.5, which waited
    assert sorted(row["params"]["loss.temperature"] for row in rows) == [0.05, 0.2, 0.3]
    again = sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=counted(begun))
    assert begun[4:] == [0.1]
    kept = next(row for row in again if row["params"]["loss.temperature"] == 0.1)
    assert kept["curve"]["10"] == 5.0 and kept["score"] == 25.0  # it was trained from its first step once more


def test_a_kill_amid_the_change_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=hill)

    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)  # of the study that was written anew
        sweep(config(), tmp_path, grid("temperature=0.05,0.1,0.2"), trainer=never)
    begun: list[float] = []
    rows = sweep(config(), tmp_path, grid("temperature=0.05,0.1,0.2"), trainer=counted(begun))
    assert begun == [0.2] and rows[:2] == first
    assert not list(tmp_path.glob(".jdistill-*"))


def test_a_refused_trial_that_is_asked_for_no_more_is_gone_from_the_table(tmp_path: Path) -> None:
    def refused(cfg: ConfigDict, folder: Path, give_up: GiveUp) -> None:
        if cfg.loss.temperature == 0.1:
            raise UserError("no such text")
        hill(cfg, folder, give_up)

    rows = sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=refused)
    assert [row["state"] for row in rows] == ["complete", "refused"]
    fewer = sweep(config(), tmp_path, grid("temperature=0.05"), trainer=never)
    assert fewer == rows[:1]
    assert [row["state"] for row in sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=hill)] == [
        "complete"
    ] * 2


@pytest.mark.parametrize(
    ("sampler", "before", "now", "named"),
    [
        ("grid", ["temperature=0.05"], ["temperature=0.05", "seed=0,1"], "seed: 0 there"),
        ("random", ["temperature=0.01..1"], ["temperature=0.01..2"], "loss.temperature"),
        ("random", ["temperature=0.05,0.1"], ["temperature=0.05,0.2"], "loss.temperature"),
    ],
)
def test_another_key_and_another_range_are_another_sweep(
    tmp_path: Path, sampler: str, before: list[str], now: list[str], named: str
) -> None:
    sweep(config(), tmp_path, parse_space(before, config(), sampler), sampler, trials=2, trainer=hill)
    written = (tmp_path / "config.json").read_bytes()
    with pytest.raises(UserError, match=f"belongs to a run with another config:\n.*{named}"):
        sweep(config(), tmp_path, parse_space(now, config(), sampler), sampler, trials=2, trainer=never)
    assert (tmp_path / "config.json").read_bytes() == written


def test_another_grid_of_another_config_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    sweep(config(), tmp_path, grid("temperature=0.05"), trainer=hill)
    written = (tmp_path / "config.json").read_bytes()
    cfg = config()
    cfg.max_steps = 7
    with pytest.raises(UserError, match="belongs to a run with another config:\n  max_steps"):
        sweep(cfg, tmp_path, grid("temperature=0.05,0.1"), trainer=never)
    assert (tmp_path / "config.json").read_bytes() == written
