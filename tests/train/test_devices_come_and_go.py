"""A run that began on some devices, or in some processes, goes on on others with the same numbers; the death of one process ends all."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from commands import HANG, ROOT, command, environment, finish, free_port, start_script, wait_for_step
from conftest import make_encoder, save_encoder, sentences
from resumed_elsewhere import DEVICES, EVERY, go_on
from stopped import run_to

from jdistill.train.checkpoint import Checkpoints

SCRIPT = ROOT / "tests" / "resumed_elsewhere.py"
CLOSE = 1e-6  # of parameters that the steps between two checkpoints move by 1e-3
ENDED_WITHIN = 60  # seconds after another process died, as the issue asks
# The step at which a resumed run is compared with the uninterrupted one.
COMPARED_AT = {f"{before}-{after}": i * EVERY for i, (before, after) in enumerate(pairwise(DEVICES), 2)}
COMPARED_AT |= {"1-two": 2 * EVERY, "two-1": 2 * EVERY}


def start(folder: Path, devices: int, *process: str) -> subprocess.Popen:
    return start_script(SCRIPT, devices, folder, *process)


def parameters(path: Path) -> np.ndarray:
    with np.load(path) as leaves:
        return np.concatenate([leaves[name].astype(np.float64).ravel() for name in leaves])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices")
    finish(start(folder, 8))
    port = free_port()
    for process in [start(folder, 4, f"127.0.0.1:{port}", "2", str(i)) for i in range(2)]:
        finish(process)
    go_on(folder / "begun-two", 2 * EVERY, folder / "two-1.npz", devices=1)
    return folder


@pytest.mark.parametrize("name", COMPARED_AT)
def test_a_run_goes_on_on_other_devices_with_the_same_numbers(folder: Path, name: str) -> None:
    whole, resumed = parameters(folder / f"whole-{COMPARED_AT[name]}.npz"), parameters(folder / f"{name}.npz")
    assert np.linalg.norm(whole) > 0
    assert np.linalg.norm(resumed - whole) < CLOSE * np.linalg.norm(whole)


def trained(checkpoints: Path, step: int) -> np.ndarray:
    """The parameters in a checkpoint as one vector."""
    opened = Checkpoints(checkpoints, 100)
    _, state, _ = opened.restore(None, [step])
    opened.close()
    return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves(state["params"])])


def test_two_processes_train_as_one_and_where_one_dies_the_same_command_resumes(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(240)) + "\n")
    keys: dict[str, Any] = {
        "student.layers": 1, "student.embedding_size": 12, "student.dropout": 0.1, "teacher": tmp_path / "teacher",
        "text": tmp_path / "text.txt", "text_column": "", "cache_dir": tmp_path / "cache", "max_steps": 5000, "batch_size": 8,
        "checkpoint_every": 10, "held_out": 20, "latency_texts": 0, "index_texts": 0, "onnx": False, "learning_rate": 1e-3,
        "warmup": 0.0, "schedule": "constant", "adam_eps": 1e-4,  # as in resumed_elsewhere.py
    }  # fmt: skip
    port = free_port()
    joined = [f"--coordinator=127.0.0.1:{port}", "--num_processes=2"]
    arguments = command("configs/simtde.py", tmp_path / "run", keys)
    processes = [
        subprocess.Popen(
            [*arguments, *joined, f"--process_id={i}"], cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True
        )
        for i in range(2)
    ]
    wait_for_step(tmp_path / "run", 20, processes[0])
    processes[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    _, said = processes[0].communicate(timeout=HANG)
    assert time.monotonic() - began < ENDED_WITHIN
    assert processes[0].returncode != 0 and said.strip(), said[-2000:]
    assert "Traceback" not in said, said[-2000:]
    processes[1].communicate()
    checkpoints = tmp_path / "run" / "distil" / "checkpoints"
    last = max(int(p.name) for p in checkpoints.glob("[0-9]*") if p.name.isdigit())
    shutil.copytree(
        checkpoints / str(last), tmp_path / "of-two" / str(last)
    )  # read where it opens no folder of the run
    alone = subprocess.Popen(arguments, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)  # one is enough
    wait_for_step(tmp_path / "run", last + 10, alone)
    alone.send_signal(signal.SIGTERM)
    _, said = alone.communicate(timeout=HANG)
    assert alone.returncode == 0 and "resuming distil at step" in said, said[-2000:]

    run_to(last, command("configs/simtde.py", tmp_path / "single", keys))
    single, two = trained(tmp_path / "single" / "distil" / "checkpoints", last), trained(tmp_path / "of-two", last)
    assert np.linalg.norm(two - single) < CLOSE * np.linalg.norm(single)
