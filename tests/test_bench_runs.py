"""Benches that run jdistill.main: what is not finished counts for nothing, and each row's command has what its name says."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT
from conftest import tiny_config

sys.path += [str(ROOT / "bench"), str(ROOT)]  # behind tests: bench has a parity.py too
import recipes
import runs
import simtde_rows
import st_trainer
import whole_way

from configs import simtde
from jdistill.models.cutting import copied_layers

RESULTS = {"student": {"num_params": 9}, "training": {"computed_in": "bfloat16"}, "scored_pairs": 80.0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were run, none of which leaves anything."""
    commands: list[list[str]] = []

    def ran(command: list[str], **_: Any) -> subprocess.CompletedProcess:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", ran)
    return commands


def test_a_run_that_a_signal_stopped_ends_the_bench(tmp_path: Path, asked: list[list[str]]) -> None:
    """It ends with status 0, as a run that was finished does."""
    with pytest.raises(SystemExit, match="a-run: stopped; the same command goes on"):
        runs.finished_run("configs/simtde.py", tmp_path / "a-run", {"seed": 1}, ["--config.seed=2"])
    assert asked[0][-2:] == ["--config.seed=1", "--config.seed=2"]  # the later counts
    (tmp_path / "a-run").mkdir()
    (tmp_path / "a-run" / "results.json").write_text(json.dumps(RESULTS))
    assert runs.finished_run("configs/simtde.py", tmp_path / "a-run", {}) == RESULTS
    other = {"training": {"computed_in": "float32"}}
    assert (runs.computed_in([RESULTS, RESULTS]), runs.computed_in([RESULTS, other])) == (
        "bfloat16",
        "bfloat16, float32",
    )


def test_a_stage_is_exported_anew_where_the_run_beside_it_is_another(tmp_path: Path, asked: list[list[str]]) -> None:
    run, out = tmp_path / "run", tmp_path / "run-distil"
    for seed, exports, checkpoint in ((0, 1, "20"), (0, 1, "20"), (1, 2, "20"), (1, 3, "30")):
        (run / "distil" / "checkpoints" / checkpoint).mkdir(parents=True, exist_ok=True)
        (run / "config.json").write_text(json.dumps({"seed": seed}))
        assert runs.stage_export(run, "distil", out) == out
        out.mkdir(exist_ok=True)
        assert len(asked) == exports


def test_a_recipe_does_not_set_what_all_rows_share() -> None:
    assert recipes.keys_of("AdamW: optimizer=adamw") == ("AdamW", {"optimizer": "adamw"})
    with pytest.raises(SystemExit, match="epochs of all rows by --steps and --seeds"):
        recipes.keys_of("two passes: epochs=2")


def test_rows_of_simtde_read_no_test_set_unless_they_are_given_it(tmp_path: Path, asked: list[list[str]]) -> None:
    assert simtde_rows.trained_row(RESULTS) == {"parameters": 9, "dev pairs": 80.0}
    flags = argparse.Namespace(
        workdir=tmp_path, teacher="t", text="a.txt", senteval="", dev_pairs="dev.csv", sentences=5, epochs=1.0, extra=[]
    )
    (tmp_path / "base-0").mkdir()
    (tmp_path / "base-0" / "results.json").write_text(json.dumps(RESULTS))
    simtde_rows.run(flags, "", 0)
    assert "--config.epochs=1.0" in asked[0]
    assert "--config.senteval=" in asked[0] and "--config.dev_pairs=dev.csv" in asked[0]
    (tmp_path / "base-0" / "untrained.json").write_text(json.dumps({"parameters": 9, "dev pairs": 70.0}))
    assert simtde_rows.untrained_row(flags, tmp_path / "base-0", "") == {"parameters": 9, "dev pairs": 70.0}


@pytest.mark.parametrize("layers", [3, 4, 6, 12, 24])
def test_the_peer_keeps_the_layers_that_ours_starts_as(layers: int) -> None:
    ours, teacher = tiny_config(num_layers=st_trainer.LAYERS), tiny_config(num_layers=layers)
    cfg = simtde.get_config()
    assert cfg.student.layers == st_trainer.LAYERS
    assert st_trainer.kept_layers(layers) == copied_layers(cfg.student.copy_layers, ours, teacher)


def test_the_peers_process_has_its_type_and_dropout_and_nothing_of_ours(tmp_path: Path) -> None:
    flags = argparse.Namespace(
        teacher=str(tmp_path),
        batch_size=64,
        st_learning_rate=5e-4,
        st_dropout=0.1,
        st_bf16=True,
        seed=3,
        workdir=tmp_path,
    )
    command = whole_way.command_of("sentence-transformers", flags, tmp_path / "caches")
    assert {"--st_bf16", "--st_dropout", "0.1"} <= set(command)
    script = f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); import st_trainer; print('jax' in sys.modules, 'jdistill' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.split() == ["False", "False"]
