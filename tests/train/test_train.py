"""The loop as a user meets it: resume, kill -9, signals, and every bad end the issue names. What ends by a signal is a real process."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import commands
import numpy as np
import pytest
from commands import ROOT, environment, run, run_inside, wait_for_step
from conftest import make_encoder, save_encoder, sentences
from train_setting import command, final_weights, truncate

from jdistill.export.trained import load_student


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
    process.wait()
    assert run(command(folder, teacher, "killed")).returncode == 0
    one, other = final_weights(folder / "run"), final_weights(workdir)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_a_signal_saves_and_says_how_to_resume(place: tuple[Path, Path], number: signal.Signals, status: int) -> None:
    folder, teacher = place
    name = f"stopped-{number.name}"
    asked = [f"--interrupted_status={status}"] if status else []
    process = subprocess.Popen(
        [*command(folder, teacher, name, max_steps=4000, checkpoint_every=20), *asked],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    wait_for_step(folder / name, 20, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=commands.HANG)
    assert process.returncode == status, errors[-2000:]
    assert (
        f"stopped by {number.name} at step" in errors
        and " -m jdistill.main" in errors.split("resume with: ")[1]
        and f"--workdir {folder / name}" in errors
    )
    stopped = int(errors.split("at step ")[1].split(",")[0])
    assert stopped in [int(p.name) for p in (folder / name / "distil" / "checkpoints").glob("[0-9]*")]


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


def test_a_loss_that_is_not_finite_stops_at_its_step_and_keeps_the_last_checkpoint(place: tuple[Path, Path]) -> None:
    done = run_inside(
        command(
            *place,
            workdir="nan",
            learning_rate=1e30,
            clip_norm=0.0,
            warmup=0.5,
            schedule="constant",
            checkpoint_every=2,
        )
    )
    assert done.returncode == 2 and "not finite" in done.stderr, done.stderr[-1500:]
    kept = [int(p.name) for p in (place[0] / "nan" / "distil" / "checkpoints").glob("[0-9]*")]
    bad = int(done.stderr.split("stopped at step ")[1].split(":")[0])
    assert not kept or max(kept) < bad
    assert not (place[0] / "nan" / "results.json").exists()


def test_a_full_disk_keeps_the_old_checkpoints_whole(place: tuple[Path, Path]) -> None:
    folder, teacher = place
    limited = command(folder, teacher, "full", checkpoint_every=20, max_steps=120)
    # A limit on a file's size fails a write as a full disk does, and needs no rights: the first checkpoint is let
    # through, then none is: of the five that follow, in case that the thread below is late.
    script = (
        "import resource, runpy, sys, threading, time, pathlib\n"
        f"folder = pathlib.Path({str(folder / 'full' / 'distil' / 'checkpoints')!r})\n"
        "def shut():\n"
        "    while not (folder / '20').is_dir(): time.sleep(0.005)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "threading.Thread(target=shut, daemon=True).start()\n"
        f"sys.argv = {limited[2:]!r}\n"
        "runpy.run_module('jdistill.main', run_name='__main__')\n"
    )
    done = run([sys.executable, "-c", script])
    assert done.returncode == 2, done.stderr[-3000:]
    assert "could not be written" in done.stderr and "Is the disk full?" in done.stderr, done.stderr[-3000:]
    resumed = run_inside(command(folder, teacher, "full", checkpoint_every=20, max_steps=120))
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert "resuming distil at step" in resumed.stderr


def test_a_missing_teacher_is_named(place: tuple[Path, Path]) -> None:
    missing = run_inside(command(place[0], place[0] / "nowhere", "missing"))
    assert missing.returncode == 2 and "nowhere" in missing.stderr and "config.teacher" in missing.stderr


def test_a_dry_run_prints_the_plan_and_writes_nothing(place: tuple[Path, Path]) -> None:
    done = run_inside([*command(*place, workdir="dry"), "--dry_run"])
    assert done.returncode == 0, done.stderr[-2000:]
    for word in ("student", "steps", "memory", "disk", "training  about"):
        assert word in done.stdout
    assert not (place[0] / "dry").exists()


def test_two_processes_train_as_one(place: tuple[Path, Path]) -> None:
    folder, teacher = place
    keys = dict(max_steps=20, checkpoint_every=10, cache_dir=folder / "cache-two")
    script = ["bash", "launch/one_host.sh", *command(folder, teacher, "two", **keys)[3:]]
    done = run(script, PROCESSES="2", PYTHON=sys.executable, PORT=str(commands.free_port()))
    assert done.returncode == 0, done.stderr[-3000:]
    assert run_inside(command(folder, teacher, "single", **keys)).returncode == 0
    two, single = load_student(folder / "two"), load_student(folder / "single")
    texts = sentences(16, seed=9)
    # Adam divides by the square root of tiny second moments, which amplifies rounding; SGD's 1e-5 is in
    # test_sharding.py.
    assert np.abs(two.encode(texts) - single.encode(texts)).max() < 1e-3
