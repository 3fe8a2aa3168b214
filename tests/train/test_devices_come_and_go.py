"""A run that began on some devices, or in some processes, goes on on others with the same numbers; the death of one process ends all."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from commands import HANG, ROOT, command, environment, finish, free_port, start_script, wait_for_step
from conftest import make_encoder, save_encoder, sentences
from simtde_setting import RESUMED_ON

SCRIPT = ROOT / "tests" / "resumed_elsewhere.py"
CLOSE = 1e-5
ENDED_WITHIN = 60  # seconds after another process died, as the issue asks


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
    finish(start(folder, 1))
    return folder


@pytest.mark.parametrize("name", [*(f"{a}-{b}" for a, b in RESUMED_ON), "1-two", "two-1"])
def test_a_run_goes_on_on_other_devices_with_the_same_numbers(folder: Path, name: str) -> None:
    whole, resumed = parameters(folder / "whole.npz"), parameters(folder / f"{name}.npz")
    assert np.linalg.norm(whole) > 0
    assert np.linalg.norm(resumed - whole) < CLOSE * np.linalg.norm(whole)


def test_a_process_that_dies_ends_the_others_and_the_same_command_resumes(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(240)) + "\n")
    keys = {
        "student.layers": 1, "student.embedding_size": 12, "teacher": tmp_path / "teacher", "text": tmp_path / "text.txt",
        "text_column": "", "cache_dir": tmp_path / "cache", "max_steps": 5000, "batch_size": 8, "checkpoint_every": 10,
        "held_out": 20, "latency_texts": 0, "index_texts": 0, "onnx": False,
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
    last = max(int(p.name) for p in (tmp_path / "run" / "distil" / "checkpoints").glob("[0-9]*") if p.name.isdigit())
    alone = subprocess.Popen(arguments, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)  # one is enough
    wait_for_step(tmp_path / "run", last + 10, alone)
    alone.send_signal(signal.SIGTERM)
    _, said = alone.communicate(timeout=HANG)
    assert alone.returncode == 0 and "resuming distil at step" in said, said[-2000:]
