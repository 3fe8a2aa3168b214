"""Sweeps: samplers and pruning, a kill, real trials that share one compiled step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jax
import pytest
from conftest import make_encoder, save_encoder, sentences, write_senseless_pairs
from jax.experimental.compilation_cache import compilation_cache
from ml_collections import ConfigDict
from remote_setting import enter_machine
from sweep_setting import config, hill, never

from jdistill.core.errors import UserError
from jdistill.models.pooling import DISTILFACE
from jdistill.report.sweep import over_seeds
from jdistill.sweep.command import sweep
from jdistill.sweep.space import parse_space
from jdistill.train.early_end import GiveUp
from jdistill.train.watch import Diverged


def test_a_sweep_in_a_store_goes_on_on_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = parse_space(["temperature=0.01,0.05,0.1"], config(), "grid")
    whole, url, begun = sweep(config(), tmp_path / "whole", space, trainer=hill), f"memory://{tmp_path.name}/sweep", []

    def killed(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        begun.append(cfg.loss.temperature)
        if len(begun) == 2:
            raise KeyboardInterrupt
        hill(cfg, folder, give_up)

    enter_machine(monkeypatch, tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        sweep(config(), url, space, trainer=killed)
    enter_machine(monkeypatch, tmp_path / "two")
    assert sweep(config(), url, space, trainer=killed) == whole
    assert sorted(begun) == [0.01, 0.05, 0.05, 0.1]  # what was ended is not run again


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_sweep_that_was_killed_draws_on_as_one_that_was_not(tmp_path: Path, sampler: str) -> None:
    space = parse_space(["temperature=0.01..1"], config(), sampler)
    whole = sweep(config(), tmp_path / "whole", space, sampler, trials=8, trainer=hill)
    begun: list[float] = []

    def killed(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        begun.append(cfg.loss.temperature)
        if len(begun) == 4:
            give_up(10, 10 - 100 * abs(cfg.loss.temperature - 0.05))
            raise KeyboardInterrupt
        hill(cfg, folder, give_up)

    with pytest.raises(KeyboardInterrupt):
        sweep(config(), tmp_path / "killed", space, sampler, trials=8, trainer=killed)
    rest: list[float] = []

    def counted(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        rest.append(cfg.loss.temperature)
        hill(cfg, folder, give_up)

    assert sweep(config(), tmp_path / "killed", space, sampler, trials=8, trainer=counted) == whole
    assert len(rest) == 5 and rest[0] == begun[3]  # the trial that was killed is taken up again
    assert sweep(config(), tmp_path / "killed", space, sampler, trials=8, trainer=never) == whole


def test_a_grid_killed_twice_runs_each_trial_on_and_keeps_its_scores(tmp_path: Path) -> None:
    space = parse_space(["temperature=0.05,0.1,0.2"], config(), "grid")
    whole = sweep(config(), tmp_path / "whole", space, trainer=hill)
    begun: list[float] = []

    def killed(at: float, done: int) -> Callable[..., None]:
        def trainer(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
            begun.append(tau := cfg.loss.temperature)
            for step in (10, 20, 30)[3 - rest.get(tau, 3) :]:  # from its checkpoint on
                give_up(step, step - 100 * abs(tau - 0.05))
                rest[tau] = rest.get(tau, 3) - 1
                if tau == at and step == done:
                    raise KeyboardInterrupt

        return trainer

    rest: dict[float, int] = {}
    for at, done in ((0.05, 30), (0.1, 20)):  # the first kill comes after its last score, before the sweep has noted it
        with pytest.raises(KeyboardInterrupt):
            sweep(config(), tmp_path / "killed", space, trainer=killed(at, done))
    assert sweep(config(), tmp_path / "killed", space, trainer=killed(9, 0)) == whole
    assert sorted(begun) == [0.05, 0.05, 0.1, 0.1, 0.2] and set(rest.values()) == {0}


def test_values_drawn_again_are_not_run_again(tmp_path: Path) -> None:
    space = parse_space(["temperature=0.05,0.1,0.2"], config(), "random")
    begun: list[float] = []

    def trainer(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        begun.append(cfg.loss.temperature)
        hill(cfg, folder, give_up)

    rows = sweep(config(), tmp_path, space, "random", trials=12, trainer=trainer)
    assert sorted(begun) == [0.05, 0.1, 0.2] == sorted(row["params"]["loss.temperature"] for row in rows)
    assert [len(row["curve"]) for row in rows] == [3, 3, 3] and over_seeds(rows)[0]["spread"] is None


def test_a_trial_without_a_dev_score_is_said_to_have_none(tmp_path: Path) -> None:
    space = parse_space(["temperature=0.05"], config(), "grid")
    with pytest.raises(UserError, match="ended without a dev score"):
        sweep(config(), tmp_path, space, trainer=lambda cfg, folder, give_up: None)


TO_THE_END: dict[str, str | int] = {"checkpoint": "auto", "patience": 0}


@pytest.mark.parametrize(
    ("keys", "score"),
    [({}, 9.0), ({"checkpoint": "last"}, 2.0), (TO_THE_END, 2.0), (TO_THE_END | {"patience": 5}, 9.0)],
)
def test_a_trial_counts_by_the_checkpoint_that_a_run_exports(
    tmp_path: Path, keys: dict[str, str | int], score: float
) -> None:
    def trainer(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        for step, value in ((10, 1.0), (20, 9.0), (30, 2.0)):
            give_up(step, value)

    cfg = config()
    cfg.update(keys)
    space = parse_space(["temperature=0.05"], cfg, "grid")
    assert [row["score"] for row in sweep(cfg, tmp_path / "sweep", space, trainer=trainer)] == [score]
    if keys == TO_THE_END:
        cfg.dev_retrieval = "collections"
        assert sweep(cfg, tmp_path / "searched", space, trainer=trainer)[0]["score"] == 9.0


def test_the_fourteen_poolers_have_a_bar_each(tmp_path: Path) -> None:
    def trainer(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        give_up(10, float(len(cfg.pooling)))

    space = parse_space([f"pooling={','.join(DISTILFACE)}"], config(), "grid")
    assert len(sweep(config(), tmp_path, space, trainer=trainer)) == 14
    assert (tmp_path / "report" / "sweep-pooling.png").is_file()


def test_pruned_and_diverged_trials_are_told_from_the_others(tmp_path: Path) -> None:
    values = [0.05, 0.06, 0.07, 0.08, 0.5, 1.0]
    space = parse_space([f"temperature={','.join(map(str, values))}"], config(), "grid")

    def trainer(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
        if cfg.loss.temperature == 1.0:
            raise Diverged("stopped at step 3")
        hill(cfg, folder, give_up)

    rows = sweep(config(), tmp_path, space, prune=True, trainer=trainer)
    assert [row["state"] for row in rows] == ["complete"] * 4 + ["pruned", "diverged"]
    assert list(rows[4]["curve"]) == ["10"] and rows[4]["params"] == {"loss.temperature": 0.5}
    page = (tmp_path / "sweep.html").read_text()
    assert "loss.temperature 0.5 (pruned)" in page and "loss.temperature 1.0 (diverged)" in page
    other = parse_space([f"temperature={','.join(map(str, [*values, 0.04]))}"], config(), "grid")
    wider = sweep(config(), tmp_path, other, prune=True, trainer=trainer)
    assert [
        row for row in wider if row["params"]["loss.temperature"] != 0.04
    ] == rows  # also what was pruned, and what diverged


def test_a_trial_that_was_trained_to_its_last_step_keeps_its_score(tmp_path: Path) -> None:
    space = parse_space([f"temperature={','.join(map(str, (0.05, 0.06, 0.07, 0.08, 0.5)))}"], config(), "grid")

    def trainer(cfg: ConfigDict, folder: Path, give_up: GiveUp) -> None:
        give_up(30, 30 - 100 * abs(cfg.loss.temperature - 0.05), last=True)

    rows = sweep(config(), tmp_path, space, prune=True, trainer=trainer)
    assert [row["state"] for row in rows] == ["complete"] * 5 and rows[4]["score"] == pytest.approx(-15.0)


def _compile_into(folder: str | None) -> None:
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()


def test_real_trials_share_the_compiled_step(tmp_path: Path) -> None:
    start = save_encoder(make_encoder(), tmp_path / "start")
    (tmp_path / "text.txt").write_text("\n".join(sentences(200)))
    write_senseless_pairs(tmp_path / "dev.csv", 40)
    cfg = config()
    cfg.update_from_flattened_dict(
        {
            "start": str(start),
            "text": str(tmp_path / "text.txt"),
            "text_column": "",
            "dev_pairs": str(tmp_path / "dev.csv"),
            "batch_size": 8,
            "max_steps": 6,
            "checkpoint_every": 3,
            "log_every": 3,
            "student.layers": 2,
            "pooling": "avg_last2",
            "cache_dir": str(tmp_path / "cache"),
        }
    )

    def steps() -> int:
        return len(list((tmp_path / "compiled").glob("jit_step-*")))

    before = jax.config.jax_compilation_cache_dir
    try:  # a folder of its own: other tests compile steps too
        _compile_into(str(tmp_path / "compiled"))
        first = sweep(cfg, tmp_path / "one", parse_space(["temperature=0.05", "learning_rate=1e-3"], cfg, "grid"))
        compiled = steps()
        space = parse_space(["temperature=0.05,0.5", "learning_rate=1e-2"], cfg, "grid")
        found = sweep(cfg, tmp_path / "two", space)
        assert steps() == compiled > 0
    finally:
        _compile_into(before)
    losses = [path.read_text() for path in tmp_path.glob("*/trials/*/contrast/metrics.jsonl")]
    assert len(first) == 1 and len(found) == 2 and len(set(losses)) == 3
    assert all(list(row["curve"]) == ["3", "6"] and row["score"] == max(row["curve"].values()) for row in found)
    assert not list((tmp_path / "two").glob("trials/*/*/checkpoints"))
    assert json.loads((tmp_path / "two" / "sweep.json").read_text()) == found
    assert {path.name for path in (tmp_path / "two" / "report").iterdir()} == {
        "sweep-loss.temperature.png",
        "sweep-curves.png",
    }


def test_seeds_of_many_digits_are_all_run(tmp_path: Path) -> None:
    cfg = config()
    space = parse_space(["seed=20240101,20240102,20240103", "temperature=0.01,0.05"], cfg, "grid")
    rows = sweep(cfg, tmp_path, space, "grid", trainer=hill)
    assert len({tuple(row["params"].items()) for row in rows}) == 6
