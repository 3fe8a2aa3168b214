"""Processes that join: which GPUs each drives under which launcher, and what is said of a coordinator that is none."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import jax
import pytest
from jax._src import distributed

from jdistill.core.errors import UserError
from jdistill.core.launchers import check_alike, connect

SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "node[0-1]", "SLURM_PROCID": "1"}
ONE_TASK_A_NODE = SLURM | {
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_LOCALID": "0",
}
FOUR_TASKS_A_NODE = SLURM | {
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1:34911", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1",
}  # fmt: skip
ALONE = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
BESIDE_ANOTHER = ONE_TASK_A_NODE | OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
LAUNCHERS = ("SLURM_", "OMPI_", "JAX_COORDINATOR", "JAX_LOCAL_DEVICE", "KUBERNETES_")
VISIBLE = ("jax_cuda_visible_devices", "jax_rocm_visible_devices")


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What JAX would have connected to: all of it but the network; and no launcher's variables."""
    connected: list[str] = []

    def client(address: str, *_: object, **__: object) -> mock.Mock:
        connected.append(address)
        return mock.Mock()

    runtime = SimpleNamespace(get_distributed_runtime_client=client, get_distributed_runtime_service=mock.Mock())
    monkeypatch.setattr(distributed, "_jax", runtime)
    monkeypatch.setattr(distributed, "global_state", distributed.State())
    monkeypatch.setattr(distributed.State, "initialize_preemption_sync_manager", lambda self: None)
    monkeypatch.setattr(distributed, "xla_bridge", SimpleNamespace(backends_are_initialized=lambda: False))
    for name in [name for name in distributed.os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    yield connected
    for name in VISIBLE:
        jax.config.update(name, "all")


@pytest.mark.parametrize(
    ("launched", "coordinator", "gpus"),
    [
        (ONE_TASK_A_NODE, "auto", "all"),
        (ONE_TASK_A_NODE, "10.0.0.1:1234", "all"),
        (FOUR_TASKS_A_NODE, "auto", "1"),
        (FOUR_TASKS_A_NODE, "10.0.0.1:1234", "1"),
        (ALONE, "auto", "all"),
        (BESIDE_ANOTHER, "auto", "1"),
        ({}, "10.0.0.1:1234", "all"),
    ],
)
def test_the_one_process_of_a_node_drives_all_of_its_gpus(
    launched: dict[str, str], coordinator: str, gpus: str, addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    connect(coordinator, 2, 1)
    assert [jax.config._read(name) for name in VISIBLE] == [gpus, gpus]
    assert len(addresses) == 1 and (coordinator == "auto" or addresses == [coordinator])


def test_the_devices_that_a_user_chooses_stay_chosen(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (ONE_TASK_A_NODE | {"JAX_LOCAL_DEVICE_IDS": "2,3"}).items():
        monkeypatch.setenv(name, value)
    connect("auto", 1, 0)
    assert [jax.config._read(name) for name in VISIBLE] == ["2,3", "2,3"] and addresses


@pytest.mark.parametrize(
    ("coordinator", "processes", "message"),
    [
        (
            "auto",
            1,
            "--coordinator=auto: no launcher tells of this run's processes .coordinator_address should be defined",
        ),
        ("node0", 2, "--coordinator=node0 is neither auto nor HOST:PORT"),
        ("node0:port", 2, "--coordinator=node0:port is neither auto nor HOST:PORT"),
        (":1234", 2, "--coordinator=:1234 is neither auto nor HOST:PORT"),
        ("node0:99999", 2, "--coordinator=node0:99999 is neither auto nor HOST:PORT"),
        ("node0:1234", 1, "--process_id=1 must lie in 0..num_processes-1"),
    ],
)
def test_a_coordinator_that_is_none_is_named(
    coordinator: str, processes: int, message: str, addresses: list[str]
) -> None:
    with pytest.raises(UserError, match=message):
        connect(coordinator, processes, 1)
    assert not addresses


@pytest.mark.parametrize(("processes", "number"), [(4, 0), (4, 1), (1, 1)])
def test_processes_without_a_coordinator_are_refused(processes: int, number: int, addresses: list[str]) -> None:
    with pytest.raises(UserError, match=f"--num_processes={processes} and --process_id={number} need --coordinator"):
        connect("", processes, number)
    assert not addresses


def test_a_single_process_joins_nobody(addresses: list[str]) -> None:
    connect("", 1, 0)
    assert not addresses


def test_processes_with_unlike_numbers_of_devices_are_refused() -> None:
    check_alike([0, 0, 1, 1])
    with pytest.raises(
        UserError, match="as many devices each, and process 0 has 2, process 1 has 1; CUDA_VISIBLE_DEVICES"
    ):
        check_alike([0, 0, 1])
