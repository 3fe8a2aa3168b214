"""A finished run whose checkpoints are gone: complete as it is, and no part of it is made again from another training."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from finished_setting import command, results


@pytest.mark.parametrize("lost", ["export", "results.json"])
def test_figures_are_of_the_checkpoint_that_is_exported(lost: str, tmp_path: Path) -> None:
    """An export that is made again from the next best checkpoint is measured again, with the index that it fills."""
    save_encoder(make_encoder(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(150)) + "\n")
    run = tmp_path / "run"
    assert run_inside(command(tmp_path, "run")).returncode == 0
    (before,) = results(run)["training"]["stages"]
    shutil.rmtree(run / "distil/checkpoints" / str(before["checkpoint"]) / "state")
    if lost == "export":
        shutil.rmtree(run / "export")
    else:
        (run / lost).write_text((run / lost).read_text() + "\n")
    done = run_inside(command(tmp_path, "run"))
    assert done.returncode == 0 and "both are made anew, of the next best" in done.stderr, done.stderr[-2000:]
    (after,) = results(run)["training"]["stages"]
    assert after["checkpoint"] != before["checkpoint"] and f"step {after['checkpoint']}" in done.stderr
    held_out = results(run)["agreement"]
    again = run_inside([*command(tmp_path, "run"), "--config.latency_texts=2"])  # measures the export once more
    assert again.returncode == 0 and results(run)["agreement"] == held_out
    assert "is complete" in run_inside([*command(tmp_path, "run"), "--config.latency_texts=2"]).stderr


def test_a_finished_run_without_checkpoints_is_not_trained_anew(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(150)) + "\n")
    place, finished = tmp_path, tmp_path / "run"
    assert run_inside(command(place, "run")).returncode == 0
    shutil.rmtree(finished / "distil/checkpoints")
    complete = run_inside(command(place, finished.name))
    assert complete.returncode == 0 and "is complete" in complete.stderr
    before = {path: path.read_bytes() for path in sorted(finished.rglob("*")) if path.is_file()}
    done = run_inside(command(place, finished.name, index_texts=40))
    assert done.returncode == 2 and "keeps no checkpoint, from which alone a part can be made again" in done.stderr
    after = {path: path.read_bytes() for path in sorted(finished.rglob("*")) if path.is_file()}
    assert {path.name for path in after if after[path] != before.get(path)} <= {"config.json"}
