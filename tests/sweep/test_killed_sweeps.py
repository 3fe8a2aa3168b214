"""A sweep that a kill ended at any moment: no setting of a grid is lost, none is drawn otherwise than by the one left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState
from sweep_setting import config, hill

from jdistill.core.files import TEMPORARY
from jdistill.sweep import command
from jdistill.sweep.command import sweep
from jdistill.sweep.space import parse_space
from jdistill.sweep.trials import open_study, run_trial, take_up_killed


def run(folder: Path, sampler: str) -> list[dict]:
    specs = ["temperature=0.01,0.05", "learning_rate=1e-3,1e-2"] if sampler == "grid" else ["temperature=0.01..0.2"]
    cfg = config()
    return sweep(cfg, folder, parse_space(specs, cfg, sampler), sampler, trials=3, trainer=hill)


@pytest.mark.parametrize("sampler", ["grid", "random"])
def test_a_kill_after_any_line_of_the_journal_changes_nothing(
    tmp_path: Path, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna notes a trial, its beginning, each of its values, its scores and its end in a line of their own."""
    monkeypatch.setattr(command, "write_sweep_page", lambda *_: None)  # whose pictures would take most of the time
    rows = run(tmp_path / "whole", sampler)
    assert len(rows) == (4 if sampler == "grid" else 3)
    settings = [(row["params"], row["score"]) for row in rows]
    lines = (tmp_path / "whole" / "study.log").read_text().splitlines(keepends=True)
    for kept in range(len(lines)):
        folder = tmp_path / f"after-{kept}"
        folder.mkdir()
        (folder / "config.json").write_bytes((tmp_path / "whole" / "config.json").read_bytes())
        (folder / "study.log").write_text("".join(lines[:kept]))
        again = run(folder, sampler)
        # Of equal scores the one that began first comes first, which a kill changes.
        assert sorted(((row["params"], row["score"]) for row in again), key=repr) == sorted(settings, key=repr), kept
        assert {row["score"]: row["curve"] for row in again} == {row["score"]: row["curve"] for row in rows}, kept


def test_a_sweep_goes_on_in_the_order_that_it_began_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trials are named in that order, which was the flags' once and is the config's now."""
    monkeypatch.setattr(command, "write_sweep_page", lambda *_: None)
    cfg = config()
    space = parse_space(["temperature=0.01,0.05", "learning_rate=1e-3,1e-2"], cfg, "grid")
    for order in (space, dict(reversed(space.items()))):
        assert list(order) != list(dict(reversed(order.items())))
        folder = tmp_path / next(iter(order))
        rows = sweep(cfg, folder, order, "grid", trainer=hill)
        lines = (folder / "study.log").read_text().splitlines(keepends=True)
        (folder / "study.log").write_text("".join(lines[: len(lines) // 2]))  # killed in the middle
        again = sweep(cfg, folder, space, "grid", trainer=hill)
        assert {str(row["params"]) for row in again} == {str(row["params"]) for row in rows}
        assert {tuple(row["params"]) for row in again} == {tuple(order)}


@pytest.mark.parametrize("kept", [1, 9])
def test_a_line_that_a_full_disk_cut_short_costs_itself_alone(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "write_sweep_page", lambda *_: None)
    rows = run(tmp_path, "grid")
    lines = (tmp_path / "study.log").read_text().splitlines(keepends=True)
    (tmp_path / "study.log").write_text("".join(lines[:kept]) + lines[kept][: len(lines[kept]) // 2])
    for _ in range(2):  # the second reads what the first appended
        again = run(tmp_path, "grid")
        assert sorted((str(row["params"]), row["score"]) for row in again) == sorted(
            (str(row["params"]), row["score"]) for row in rows
        )


def test_a_trials_checkpoints_go_all_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-deleted ones would be taken for damaged by the trial that goes on."""

    def train(_: object, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        for step in ("2", "4"):
            (folder / "contrast" / "checkpoints" / step).mkdir(parents=True)
        give_up(4, 1.0)

    def refuse(path: Path) -> None:
        assert path.name.startswith(TEMPORARY) and len(list((path / "checkpoints").iterdir())) == 2

    monkeypatch.setattr(command, "take_away", refuse)
    cfg = config()
    sweep(cfg, tmp_path, parse_space(["temperature=0.01"], cfg, "grid"), trainer=train)
    assert not list(tmp_path.glob("trials/*/contrast/checkpoints"))


def test_a_kill_while_checkpoints_go_trains_no_trial_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg, begun = config(), []
    space = parse_space(["temperature=0.01,0.05"], cfg, "grid")

    def train(_: object, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        begun.append(folder.name)
        (folder / "contrast" / "checkpoints" / "2").mkdir(parents=True)
        give_up(2, 1.0)

    with monkeypatch.context() as killed:
        killed.setattr(command, "take_away", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sweep(cfg, tmp_path, space, trainer=train)
    rows = sweep(cfg, tmp_path, space, trainer=train)
    assert len(begun) == len(set(begun)) == len(rows) == 2
    assert not list(tmp_path.rglob("checkpoints"))


def test_a_sweep_goes_on_by_the_checkpoint_that_it_began_with(tmp_path: Path) -> None:
    """As one that began before patience made auto the best."""

    def trainer(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        give_up(10, 9.0)
        give_up(20, 2.0)

    cfg = config()
    cfg.update({"checkpoint": "auto", "patience": 5})
    space = parse_space(["temperature=0.01,0.05"], cfg, "grid")
    assert [row["score"] for row in sweep(cfg, tmp_path / "new", space, trainer=trainer)] == [9.0, 9.0]
    config_file = tmp_path / "begun" / "config.json"
    (tmp_path / "begun" / "trials").mkdir(parents=True)
    config_file.write_text((tmp_path / "new" / "config.json").read_text().replace('"best"', '"last"'))
    assert [row["score"] for row in sweep(cfg, tmp_path / "begun", space, trainer=trainer)] == [2.0, 2.0]


def test_a_trial_that_was_killed_at_its_last_step_is_not_pruned_by_that_step(tmp_path: Path) -> None:
    """A resumed trial is told its newest checkpoint's score again; the last step's, which the study knows already, prunes nothing."""
    space = {"rate": CategoricalDistribution([0, 1, 2, 3, 4])}

    def to_its_end(give_up: Callable[..., bool]) -> None:
        if not give_up(100, 55.0):
            give_up(200, 58.0, last=True)

    def killed(give_up: Callable[..., bool]) -> None:
        to_its_end(give_up)
        raise KeyboardInterrupt

    study = open_study(tmp_path / "study.log", prune=True)
    for more in range(4):
        run_trial(
            study,
            study.ask(space),
            {},
            lambda give_up, more=more: give_up(100, 50.0 + more) or give_up(200, 60.0 + more, last=True),
        )
    with pytest.raises(KeyboardInterrupt):
        run_trial(study, study.ask(space), {}, killed)
    study = open_study(tmp_path / "study.log", prune=True)
    (curve,) = take_up_killed(study, space).values()
    assert curve == {100: 55.0, 200: 58.0}
    run_trial(study, study.ask(space), curve, to_its_end)
    assert study.trials[-1].state == TrialState.COMPLETE and study.trials[-1].intermediate_values == {
        100: 55.0,
        200: 58.0,
    }
