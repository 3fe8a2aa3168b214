"""shard_params: parameters and optimiser split over eight devices, of one process and of two, give one device's numbers and checkpoints."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import finish, free_port, start_script

from jdistill.train.checkpoint import Checkpoints

SCRIPT = Path(__file__).parents[1] / "sharded_state.py"
CLOSE = 1e-5


def start(folder: Path, devices: int, *process: str) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    return start_script(SCRIPT, devices, folder, *process)


def state(path: Path) -> np.ndarray:
    """All numbers of a state in one vector."""
    with np.load(path) as leaves:
        return np.concatenate([leaves[name].astype(np.float64).ravel() for name in leaves])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    finish(start(folder / "one", 8))
    port = free_port()
    for process in [start(folder / "two", 4, f"127.0.0.1:{port}", "2", str(i)) for i in range(2)]:
        finish(process)
    return folder


@pytest.mark.parametrize("processes", ["one", "two"])
def test_split_over_eight_devices_gives_one_devices_numbers(folder: Path, processes: str) -> None:
    whole, split = state(folder / "one" / "whole.npz"), state(folder / processes / "split.npz")
    assert np.linalg.norm(whole) > 0
    assert np.linalg.norm(split - whole) < CLOSE * np.linalg.norm(whole)


def test_so_do_muons_products_of_split_matrices(folder: Path) -> None:
    whole, split, adamw = (state(folder / "one" / f"{name}.npz") for name in ("muon-whole", "muon-split", "whole"))
    assert whole.shape != adamw.shape  # no second moment of a matrix
    assert np.linalg.norm(split - whole) < CLOSE * np.linalg.norm(whole)


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_a_checkpoint_is_restored_on_another_number_of_devices(folder: Path, devices: int) -> None:
    np.testing.assert_array_equal(state(folder / "one" / f"{devices}.npz"), state(folder / "one" / "split.npz"))


def test_two_processes_left_a_whole_checkpoint(folder: Path) -> None:
    checkpoints = Checkpoints(folder / "two" / "split", 2)
    step, arrays, about = checkpoints.restore(None)
    checkpoints.close()
    assert step == int(arrays["step"]) == 5 and about["score"] == 0.5
