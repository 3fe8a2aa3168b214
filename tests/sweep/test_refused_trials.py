"""Trials that end in a UserError: the others go on, and the next call of the same sweep tries them again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from ml_collections import ConfigDict
from sweep_setting import config, hill, never

from jdistill.core.errors import UserError
from jdistill.sweep import command
from jdistill.sweep.command import sweep
from jdistill.sweep.space import Space, parse_space
from jdistill.train.early_end import GiveUp


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "write_sweep_page", lambda *_: None)


def space_of(sampler: str) -> Space:
    specs = ["temperature=0.01,0.05,0.1"] if sampler == "grid" else ["temperature=0.01..0.2"]
    return parse_space(specs, config(), sampler)


@pytest.mark.parametrize(
    ("sampler", "error"),
    [
        ("grid", UserError("the start has 6 layers")),
        ("random", UserError("the start has 6 layers")),
        ("tpe", RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")),
    ],
)
def test_the_others_go_on_and_the_next_call_tries_it_again(tmp_path: Path, sampler: str, error: Exception) -> None:
    whole = sweep(config(), tmp_path / "whole", space_of(sampler), sampler, trials=3, trainer=hill)
    begun: list[float] = []

    def first_is_refused(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        begun.append(cfg.loss.temperature)
        if len(begun) in (1, 4):
            give_up(10, 10 - 100 * abs(cfg.loss.temperature - 0.05))
            raise error
        hill(cfg, folder, give_up)

    for calls in (1, 2):
        rows = sweep(config(), tmp_path / "sweep", space_of(sampler), sampler, trials=3, trainer=first_is_refused)
        assert len(begun) == 2 + calls and len(rows) == 3 and [row["state"] for row in rows[:2]] == ["complete"] * 2
        assert (rows[2]["state"], rows[2]["score"], rows[2]["error"]) == ("refused", None, str(error))
        assert list(rows[2]["curve"]) == ["10"] and rows[2]["params"]["loss.temperature"] == begun[0]
        assert json.loads((tmp_path / "sweep" / "sweep.json").read_text()) == rows
    rows = sweep(config(), tmp_path / "sweep", space_of(sampler), sampler, trials=3, trainer=hill)  # mended
    assert sorted(rows, key=repr) == sorted(whole, key=repr)
    assert sweep(config(), tmp_path / "sweep", space_of(sampler), sampler, trials=3, trainer=never) == rows


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_a_trial_whose_score_is_no_number_has_diverged_and_the_sweep_ends(tmp_path: Path, sampler: str) -> None:
    begun: list[float] = []

    def trainer(cfg: ConfigDict, folder: Path, give_up: GiveUp) -> None:
        begun.append(cfg.loss.temperature)
        assert len(begun) <= 2
        give_up(10, math.nan if cfg.loss.temperature == 0.1 else 50.0)

    rows = sweep(
        config(), tmp_path, parse_space(["temperature=0.1,0.2"], config(), "grid"), sampler, 2, trainer=trainer
    )
    assert {row["state"] for row in rows} <= {"complete", "diverged"} and ("diverged" in str(rows)) == (0.1 in begun)


def test_a_defect_ends_the_sweep(tmp_path: Path) -> None:
    def broken(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        sweep(config(), tmp_path, space_of("grid"), trainer=broken)


def test_another_grid_is_taken_where_all_of_it_was_refused(tmp_path: Path) -> None:
    def refused(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        raise UserError("no such text")

    rows = sweep(config(), tmp_path, space_of("grid"), trainer=refused)
    assert [row["state"] for row in rows] == ["refused"] * 3
    other = parse_space(["temperature=0.05,0.2"], config(), "grid")
    assert [row["params"]["loss.temperature"] for row in sweep(config(), tmp_path, other, trainer=hill)] == [0.05, 0.2]


def test_the_command_ends_with_a_status_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "CONFIG": config(),
        "WORKDIR": str(tmp_path),
        "GRID": ["temperature=0.05"],
        "SAMPLER": "grid",
        "TRIALS": 1,
    }
    for name, value in (values | {"PRUNE": False, "SAMPLER_SEED": 0}).items():
        monkeypatch.setattr(command, name, SimpleNamespace(value=value))
    row = {
        "params": {"loss.temperature": 0.05},
        "score": None,
        "state": "refused",
        "curve": {},
        "error": "no such text",
    }
    monkeypatch.setattr(command, "keep_compiled_programs", lambda: None)
    monkeypatch.setattr(command, "sweep", lambda *_: [row])
    assert command.sweep_command([]) == 2
    said = capsys.readouterr().err
    assert "1 of 1 trials were refused" in said and "loss.temperature 0.05: no such text" in said
