"""Runs whose text, cache and folder lie in an object store: killed on one machine, they end bit-identical on another."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import commands
import fsspec
import numpy as np
import pytest
from commands import HANG, ROOT, environment, run_inside
from conftest import make_encoder, save_encoder, sentences
from remote_setting import CREDENTIALS, enter_machine, objects, skip_without_store
from stopped import run_to

import jdistill
from jdistill import search
from jdistill.core import remote
from jdistill.core.fetched import RUN_FILES
from jdistill.core.remote import Store
from jdistill.export import command as export_command
from jdistill.train.checkpoint import Checkpoints

STEPS, EVERY = 400, 100


def command(teacher: Path, text: str, cache: str, workdir: str, **keys: object) -> list[str]:
    settings: dict[str, object] = {
        "student.layers": 2,
        "student.embedding_size": 12,
        "student.dropout": 0.1,
        "teacher": teacher,
        "text": text,
        "text_column": "",
        "cache_dir": cache,
        "max_steps": STEPS,
        "batch_size": 8,
        "checkpoint_every": EVERY,
        "log_every": 50,
        "held_out": 20,
        "length_buckets": 2,
        "latency_texts": 0,
        "index_texts": 50,
        "onnx": False,
        "learning_rate": 1e-3,
    }
    where = command_line = commands.command("configs/simtde.py", Path("WORKDIR"), settings | keys)
    where[command_line.index("WORKDIR")] = workdir
    return where


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with text and a tiny teacher, and the uninterrupted run in it, all of it local."""
    folder = tmp_path_factory.mktemp("remote")
    teacher = save_encoder(make_encoder(), folder / "teacher")
    (folder / "text.txt").write_text("\n".join(sentences(240)) + "\n")
    done = run_inside(command(teacher, str(folder / "text.txt"), str(folder / "cache"), str(folder / "run")))
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, teacher


def assert_same_run(one: Path, other: Path) -> None:
    """Arrays of the last checkpoint, optimiser too, and the exported weights."""
    states = []
    for folder in (one, other):
        checkpoints = Checkpoints(folder / "distil" / "checkpoints", 100)
        step, state, _ = checkpoints.restore(None)
        checkpoints.close()
        assert step == STEPS
        states.append([np.asarray(leaf) for leaf in __import__("jax").tree.leaves(state)])
    for left, right in zip(*states, strict=True):
        np.testing.assert_array_equal(left, right)
    weights = [(folder / "export" / "model.safetensors").read_bytes() for folder in (one, other)]
    assert weights[0] == weights[1]


def mirror_of(machine: Path) -> Path:
    return next(path for path in (machine / "jdistill" / "mirrors").glob("*-run") if path.is_dir())


def test_a_run_goes_on_where_another_machine_stopped(
    place: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, teacher = place
    bucket = f"memory://{tmp_path.name}"
    Store(f"{bucket}/text.txt").put(folder / "text.txt", "")
    this = command(teacher, f"{bucket}/text.txt", f"{bucket}/cache", f"{bucket}/run")
    enter_machine(monkeypatch, tmp_path / "one")
    run_to(EVERY, this)
    shutil.rmtree(tmp_path / "one")
    enter_machine(monkeypatch, tmp_path / "two")
    done = run_inside(this)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"resuming distil at step {EVERY} of {STEPS}" in done.stderr and "asked" not in done.stderr
    assert_same_run(folder / "run", mirror_of(tmp_path / "two"))
    again = run_inside(this)
    assert again.returncode == 0 and "is complete" in again.stderr
    enter_machine(monkeypatch, tmp_path / "three")
    assert export_command.main(["--workdir", f"{bucket}/run", "--out", str(tmp_path / "out")]) == 0
    weights = [(where / "model.safetensors").read_bytes() for where in (tmp_path / "out", folder / "run" / "export")]
    assert weights[0] == weights[1]
    other = run_inside([*this, "--config.learning_rate=2e-3"])
    assert other.returncode == 2 and "learning_rate: 0.001 there, 0.002 now" in other.stderr


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A bucket of an object store that listens on this machine, and its address in the environment."""
    skip_without_store()
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in CREDENTIALS.items():
            patched.setenv(name, value)
        patched.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:{1}".format(*server.get_host_and_port()))
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("bucket")
        yield "s3://bucket"
    server.stop()


def test_killed_on_one_machine_it_ends_bit_identical_on_another(
    place: tuple[Path, Path],
    store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, teacher = place
    Store(f"{store}/text.txt").put(folder / "text.txt", "")
    this = command(teacher, f"{store}/text.txt", f"{store}/cache", f"{store}/run")
    one, two = tmp_path / "one", tmp_path / "two"
    env = environment() | {"XDG_CACHE_HOME": str(one)}
    process = subprocess.Popen(this, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
    of_run, deadline = Store(f"{store}/run"), time.monotonic() + HANG
    while f"checkpoints/{EVERY}/" not in (of_run.read(RUN_FILES) or b"").decode():
        assert process.poll() is None and time.monotonic() < deadline, process.stderr and process.stderr.read()[-2000:]
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    shutil.rmtree(one)
    enter_machine(monkeypatch, two)
    done = run_inside(this)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "resuming distil at step" in done.stderr and "asked" not in done.stderr
    assert_same_run(folder / "run", mirror_of(two))
    listed = json.loads(objects(f"{store}/run")[RUN_FILES])["files"]
    assert {"config.json", "results.json", "report.html", "export/model.safetensors"} <= listed.keys()
    # On a third machine what the store holds is read.
    enter_machine(monkeypatch, tmp_path / "three")
    texts = sentences(3)
    local, remote_one = (jdistill.load(f"{run}/export").encode(texts) for run in (folder / "run", f"{store}/run"))
    np.testing.assert_array_equal(local, remote_one)
    assert search.main([texts[0], "--workdir", f"{store}/run", "--k", "1"]) == 0
    assert texts[0][:20] in capsys.readouterr().out


def refused(arguments: list[str]) -> str:
    """What a command that ends with 2 says, which is one line."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # which holds the address and the credentials
    done = run_inside(arguments)
    assert done.returncode == 2, done.stderr
    return done.stderr.splitlines()[-1]


def check_credentials_after(questions: str) -> None:
    """Has the store refuse keys that nobody made there, after so many further questions."""
    address = f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset-auth"
    question = urllib.request.Request(address, questions.encode(), {"Content-Type": "text/plain"}, method="POST")
    urllib.request.urlopen(question).close()


def settings_in(store: str, key: str, teacher: Path, tmp_path: Path) -> list[str]:
    where = {"text": str(tmp_path / "text.txt"), "cache": str(tmp_path / "cache"), "workdir": str(tmp_path / "run")}
    (tmp_path / "text.txt").write_text("\n".join(sentences(240)) + "\n")
    return command(teacher, **where | {key: f"{store}/{key}.txt"})


@pytest.mark.parametrize("key, flag", [("text", "config.text"), ("cache", "config.cache_dir"), ("workdir", "workdir")])
def test_a_bucket_that_there_is_not_is_one_line(
    place: tuple[Path, Path], store: str, key: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_machine(monkeypatch, tmp_path / "here")
    said = refused(settings_in("s3://no-such-bucket", key, place[1], tmp_path))
    assert said.startswith(f"error: --{flag}=s3://no-such-bucket/{key}.txt: there is no such")


@pytest.mark.parametrize("key, flag", [("text", "config.text"), ("workdir", "workdir")])
def test_refused_credentials_are_one_line(
    place: tuple[Path, Path], store: str, key: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_machine(monkeypatch, tmp_path / "here")
    check_credentials_after("0")  # questions
    try:
        said = refused(settings_in(store, key, place[1], tmp_path))
    finally:
        check_credentials_after("inf")
    assert said.startswith(f"error: --{flag}={store}/{key}.txt: the store refuses") and "credentials" in said


def test_a_store_that_cannot_be_reached_is_one_line(
    place: tuple[Path, Path], store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_machine(monkeypatch, tmp_path / "here")
    monkeypatch.setattr(remote, "PAUSES", (0.1, 0.1))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{commands.free_port()}")
    for key in ("text", "workdir"):
        said = refused(settings_in(store, key, place[1], tmp_path))
        assert "the store does not answer as it should, 3 times asked" in said and "Could not connect" in said
    started = time.monotonic()  # and as users meet it
    done = commands.run(settings_in(store, "workdir", place[1], tmp_path))
    assert done.returncode == 2 and time.monotonic() - started < 60
    assert "Traceback" not in done.stderr and done.stderr.splitlines()[-1].startswith(
        f"error: --workdir={store}/workdir.txt: "
    )
