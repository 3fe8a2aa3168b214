"""The same numbers on one device as on many: raw gradients, a literal pmap reference, two real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import finish, free_port, start_script
from ibkd_setting import IN_TWO_PROCESSES, of_devices

SCRIPT = Path(__file__).parents[1] / "sharded_gradients.py"


def start(folder: Path, devices: int, *process: str) -> subprocess.Popen:
    return start_script(SCRIPT, devices, folder, *process)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the process with eight devices wrote."""
    folder = tmp_path_factory.mktemp("gradients")
    finish(start(folder, 8))
    return folder


@pytest.fixture(scope="module")
def gradients(folder: Path) -> dict[int, dict[str, np.ndarray]]:
    return {devices: dict(np.load(folder / f"{devices}.npz")) for devices in (1, 2, 4, 8)}


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_raw_gradients_do_not_depend_on_the_devices(gradients: dict, devices: int) -> None:
    for variant in of_devices(devices):
        names = [n for n in gradients[1] if n.startswith(f"{variant}/") and n.split("/")[1].isdigit()]
        one, many = (np.concatenate([found[n].ravel() for n in names]) for found in (gradients[1], gradients[devices]))
        assert np.linalg.norm(one) > 0
        assert relative(many, one) < 1e-5, variant
        assert relative(gradients[devices][f"{variant}/loss"], gradients[1][f"{variant}/loss"]) < 1e-5


@pytest.mark.parametrize("variant", ["pair_mse", "ibkd", "crd", "finetune"])
def test_no_device_holds_a_whole_matrix_of_pairs(gradients: dict, variant: str) -> None:
    assert gradients[1][f"{variant}/square"] > 0  # the pattern does find it where it must be
    assert gradients[8][f"{variant}/square"] == 0


def test_two_processes_equal_one(gradients: dict, tmp_path: Path) -> None:
    port = free_port()
    pair = [start(tmp_path, 1, f"127.0.0.1:{port}", "2", str(i)) for i in range(2)]
    for process in pair:
        finish(process)
    two = dict(np.load(tmp_path / "two.npz"))
    for variant in [*IN_TWO_PROCESSES, "sgd"]:
        names = [n for n in two if n.startswith(f"{variant}/") and n.split("/")[1].isdigit()]
        one, both = (np.concatenate([found[n].ravel() for n in names]) for found in (gradients[1], two))
        assert relative(both, one) < 1e-5, variant


def test_the_step_equals_a_literal_pmap_of_the_loss_with_pmean(folder: Path) -> None:
    """For a loss that is a mean over texts, pmap over shards with pmean'd gradients is the textbook data-parallel step."""
    found = np.load(folder / "pmap.npz")
    assert np.linalg.norm(found["pmap"]) > 0
    assert relative(found["ours"], found["pmap"]) < 1e-5
