"""The loop as a user meets it: resume, kill -9, signals, and every bad end the issue names. What SIGKILL and SIGTERM end is a real process."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import commands
import numpy as np
import pytest
from absl.testing import flagsaver
from commands import ROOT, environment, run, run_inside, wait_for_step
from conftest import make_encoder, save_encoder, sentences
from train_setting import command, final_weights, truncate

from jdistill import main
from jdistill.config.flags import parse
from jdistill.core.progress import log
from jdistill.train.dataset import Data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with text and a tiny teacher, and the uninterrupted run in it."""
    folder = tmp_path_factory.mktemp("train")
    teacher = save_encoder(make_encoder(), folder / "teacher")
    (folder / "text.txt").write_text("\n".join(sentences(240)) + "\n")
    done = run_inside(command(folder, teacher))  # a process of its own gives the same bits, as the test of kills holds
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, teacher


def test_the_folder_of_a_run(place: tuple[Path, Path]) -> None:
    workdir = place[0] / "run"
    for name in (
        "config.json",
        "results.json",
        "report.html",
        "distil/metrics.jsonl",
        "export/model.safetensors",
        "export/README.md",
    ):
        assert (workdir / name).is_file(), name
    assert list((workdir / "distil" / "events").iterdir())
    lines = [json.loads(line) for line in (workdir / "distil" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] and len(losses) == 12
    training = json.loads((workdir / "results.json").read_text())["training"]
    assert training["steps"] == 60 and training["computed_in"] == "float32"


def test_the_same_command_again_says_that_the_run_is_complete(place: tuple[Path, Path]) -> None:
    again = run_inside(command(*place))
    assert again.returncode == 0 and "is complete" in again.stderr


def test_another_config_in_the_same_workdir_is_refused_with_the_keys(place: tuple[Path, Path]) -> None:
    other = run_inside(command(*place, learning_rate=2e-3, batch_size=16))
    assert other.returncode == 2
    assert "learning_rate: 0.001 there, 0.002 now" in other.stderr and "batch_size: 8 there, 16 now" in other.stderr


def test_killed_at_a_random_moment_it_ends_bit_identical(place: tuple[Path, Path]) -> None:
    folder, teacher = place
    workdir, rng = folder / "killed", np.random.default_rng(0)
    process = subprocess.Popen(
        command(folder, teacher, "killed"), cwd=ROOT, stderr=subprocess.DEVNULL, env=environment()
    )
    wait_for_step(workdir, 10, process)  # one kill: hundreds are in bench/campaign.py
    time.sleep(float(rng.uniform(0, 0.4)))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    again = run(command(folder, teacher, "killed"))
    assert again.returncode == 0 and "resuming distil at step" in again.stderr, again.stderr[-3000:]
    one, other = final_weights(folder / "run"), final_weights(workdir)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def assert_saved_and_told(said: str, name: str, arguments: list[str], workdir: Path) -> None:
    """That a stopped run's last step is on disk, and that it says how to resume it."""
    assert f"stopped by {name} at step" in said, said[-2000:]
    resume = shlex.split(said.split("resume with: ")[1].splitlines()[0])
    assert resume[1:] == arguments[1:] and resume[1:3] == ["-m", "jdistill.main"]
    stopped = int(said.split("at step ")[1].split(",")[0])
    assert stopped in [int(p.name) for p in (workdir / "distil" / "checkpoints").glob("[0-9]*")]


def test_sigterm_saves_and_says_how_to_resume(place: tuple[Path, Path]) -> None:
    workdir = place[0] / "terminated"
    arguments = [*command(*place, "terminated", max_steps=4000, checkpoint_every=20), "--interrupted_status=143"]
    process = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment())
    wait_for_step(workdir, 20, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=commands.HANG)
    assert process.returncode == 143, said[-2000:]
    assert_saved_and_told(said, "SIGTERM", arguments, workdir)


def test_ctrl_c_saves_and_says_how_to_resume(
    place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same function of main's as in a process, whose end by this status is in test_devices_come_and_go.py."""
    arguments, batch = command(*place, "stopped"), Data.batch

    def interrupting(self: Data, step: int) -> dict[str, np.ndarray]:
        if step == 24:
            signal.raise_signal(signal.SIGINT)
        return batch(self, step)

    monkeypatch.setattr(Data, "batch", interrupting)
    monkeypatch.setattr(sys, "argv", arguments[2:])
    log.addHandler(caplog.handler)  # so that setup_logging adds none
    with flagsaver.flagsaver():
        parse(sys.argv)
        assert main.train_command([]) == 0
    assert_saved_and_told("\n".join(caplog.messages), "SIGINT", arguments, place[0] / "stopped")


def stopped_run(place: tuple[Path, Path], name: str) -> Path:
    """A copy of the uninterrupted run without its end: to be resumed from its newest checkpoint."""
    workdir = place[0] / name
    shutil.copytree(place[0] / "run", workdir)
    (workdir / "results.json").unlink()
    return workdir


def test_a_corpus_that_shrank_and_another_teacher_are_refused(place: tuple[Path, Path]) -> None:
    folder, teacher = place
    stopped_run(place, "shrank")
    text = folder / "text.txt"
    whole = text.read_text()
    try:
        text.write_text("\n".join(whole.splitlines()[:200]) + "\n")
        done = run_inside(command(folder, teacher, "shrank"))
    finally:
        text.write_text(whole)
    assert (
        done.returncode == 2
        and "the training text has changed" in done.stderr
        and "it was 220 texts and is now 180" in done.stderr
    )
    try:
        save_encoder(make_encoder(seed=3), teacher)
        done = run_inside(command(folder, teacher, "shrank"))
    finally:
        save_encoder(make_encoder(), teacher)
    assert done.returncode == 2 and "the teacher changed since" in done.stderr, done.stderr[-3000:]


def test_a_truncated_checkpoint_falls_back_to_the_one_before(place: tuple[Path, Path]) -> None:
    folder, teacher = place
    workdir = stopped_run(place, "truncated")
    steps = sorted(int(p.name) for p in (workdir / "distil" / "checkpoints").glob("[0-9]*"))
    assert len(steps) >= 2
    truncate(workdir / "distil" / "checkpoints" / str(steps[-1]))
    done = run_inside(command(folder, teacher, "truncated"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert (
        f"checkpoints/{steps[-1]} cannot be read" in done.stderr
        and f"resuming distil at step {steps[-2]}" in done.stderr
    )
    one, other = final_weights(folder / "run"), final_weights(workdir)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_when_no_checkpoint_can_be_read_it_says_so(place: tuple[Path, Path]) -> None:
    workdir = stopped_run(place, "all-truncated")
    for checkpoint in (workdir / "distil" / "checkpoints").glob("[0-9]*"):
        truncate(checkpoint)
    done = run_inside(command(*place, workdir="all-truncated"))
    assert done.returncode == 2 and "no checkpoint in" in done.stderr and "delete the folder" in done.stderr


def test_a_loss_that_is_not_finite_stops_at_its_step_and_keeps_the_last_checkpoint(
    place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Data.batch

    def broken(self: Data, step: int) -> dict[str, np.ndarray]:
        arrays = batch(self, step)
        return arrays | {"teacher": np.full_like(arrays["teacher"], np.nan)} if step >= 5 else arrays

    monkeypatch.setattr(Data, "batch", broken)
    done = run_inside(command(*place, workdir="nan", checkpoint_every=2))
    assert done.returncode == 2 and "stopped at step 6: the loss is not finite" in done.stderr, done.stderr[-1500:]
    assert "The last good checkpoint is that of step 4;" in done.stderr
    assert sorted(int(p.name) for p in (place[0] / "nan" / "distil" / "checkpoints").glob("[0-9]*")) == [2, 4]
    assert not (place[0] / "nan" / "results.json").exists()


def test_a_missing_teacher_is_named(place: tuple[Path, Path]) -> None:
    missing = run_inside(command(place[0], place[0] / "nowhere", "missing"))
    assert missing.returncode == 2 and "nowhere" in missing.stderr and "config.teacher" in missing.stderr


def test_a_dry_run_prints_the_plan_and_writes_nothing(place: tuple[Path, Path]) -> None:
    done = run_inside([*command(*place, workdir="dry"), "--dry_run"])
    assert done.returncode == 0, done.stderr[-2000:]
    for word in ("student", "steps", "memory", "disk", "training  about"):
        assert word in done.stdout
    assert not (place[0] / "dry").exists()
