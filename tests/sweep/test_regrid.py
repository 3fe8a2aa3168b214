"""A grid of other values in the folder of a sweep: what ended stays and is not run again, what is new is run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from ml_collections import ConfigDict
from sweep_setting import config, hill, never

from jdistill.core.errors import UserError
from jdistill.report.sweep import over_seeds, settings_table
from jdistill.sweep.command import Trainer, best_line, sweep
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
    fewer = sweep(config(), tmp_path, grid("temperature=0.1,0.2"), trainer=never)
    by_temperature = {row["params"]["loss.temperature"]: row for row in wider}
    earlier = [by_temperature[tau] | {"earlier": True} for tau in (0.05, 0.01)]
    assert fewer == [
        by_temperature[0.1],
        by_temperature[0.2],
        *earlier,
    ]  # what ended stays in the table, as no rival of what is asked
    assert best_line(fewer) == "best: dev score 25.00 by --config.loss.temperature=0.1"
    assert [row[-1] for row in settings_table(over_seeds(fewer)).rows] == [
        "1",
        "1",
        "1, earlier grid",
        "1, earlier grid",
    ]


def test_a_wider_grid_of_two_keys_runs_what_is_new_of_both(tmp_path: Path) -> None:
    first = sweep(config(), tmp_path, grid("temperature=0.05,0.1", "seed=0"), trainer=hill)
    wider = sweep(config(), tmp_path, grid("temperature=0.05,0.2", "seed=0,1"), trainer=hill)
    settings = [(row["params"]["loss.temperature"], row["params"]["seed"]) for row in wider]
    assert sorted(settings) == [(0.05, 0), (0.05, 1), (0.1, 0), (0.2, 0), (0.2, 1)]
    assert [row for row in wider if "earlier" not in row][0] == first[0]
    assert [row["params"]["loss.temperature"] for row in wider if "earlier" in row] == [0.1]


def test_one_seed_of_an_earlier_grid_is_not_ahead_of_the_means_of_this_one(tmp_path: Path) -> None:
    def lucky(cfg: ConfigDict, folder: Path, give_up: GiveUp) -> None:
        give_up(30, 50.0 + 30 * (cfg.loss.temperature == 0.05) + cfg.seed)

    sweep(config(), tmp_path, grid("temperature=0.05,0.1", "seed=0"), trainer=lucky)
    rows = sweep(config(), tmp_path, grid("temperature=0.1,0.2", "seed=0,1,2"), trainer=lucky)
    assert best_line(rows).startswith("best: dev score 51.00 (mean of 3 seeds)")
    assert [group["earlier"] for group in over_seeds(rows)] == [False, False, True]


def test_a_setting_that_waits_twice_hides_no_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=counted([], at=0.1))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(optuna.Study, "tell", killed)  # between its enqueueing and its end
            sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=never)
    begun: list[float] = []
    rows = sweep(config(), tmp_path, grid("temperature=0.05,0.1,0.2"), trainer=counted(begun))
    assert begun == [0.1, 0.2] and len(rows) == 3


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
    assert fewer == rows[:1]  # nor is the command's end the worse for it
    assert [row["state"] for row in sweep(config(), tmp_path, grid("temperature=0.05,0.1"), trainer=hill)] == [
        "complete"
    ] * 2


@pytest.mark.parametrize(
    ("sampler", "before", "now", "named"),
    [
        ("grid", ["temperature=0.05"], ["temperature=0.05", "seed=0,1"], "seed: 0 there"),
        (
            "grid",
            ["dev_pairs=dev.csv"],
            ["dev_pairs=dev.csv,other.csv"],
            "dev_pairs",
        ),  # whose scores say nothing of one another
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


@pytest.mark.parametrize("content", ["[1]", "3", "{"])
def test_a_config_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match="is damaged, or no config"):
        sweep(config(), tmp_path, grid("temperature=0.05"), trainer=never)


def test_a_fixed_key_that_reads_like_a_grids_is_fixed(tmp_path: Path) -> None:
    cfg = config()
    cfg.dev_pairs = "CategoricalDistribution(a"
    sweep(cfg, tmp_path, grid("temperature=0.05"), trainer=hill)
    cfg.dev_pairs = "CategoricalDistribution(b"
    with pytest.raises(UserError, match="belongs to a run with another config:\n  dev_pairs"):
        sweep(cfg, tmp_path, grid("temperature=0.05"), trainer=never)
