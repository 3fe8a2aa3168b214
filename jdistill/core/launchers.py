"""How the processes of a run find one another, and which devices each of them drives."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable

import jax

from jdistill.core.errors import UserError, first_line

LOST_AFTER = 30  # seconds without a sign of life, after which a process counts as dead and the others end


def connect(coordinator: str, num_processes: int, process_id: int) -> None:
    """Joins the processes of one run; does nothing for a single process without a coordinator. No device may have been used before.

    Where Slurm or Open MPI started one process a node, it drives all GPUs of that node; where they started several, each drives the GPU
    of its number there. JAX_LOCAL_DEVICE_IDS says otherwise.

    Args:
      coordinator: HOST:PORT of process 0, or "auto" where the launcher's own variables tell (Slurm, Kubernetes, MPI); "": none.
      num_processes: of the run.
      process_id: of this one, from 0.

    Raises: UserError for a process that is none of them, a coordinator that is none or no HOST:PORT, and "auto" where no launcher tells.
    """
    if not coordinator:
        if num_processes != 1 or process_id != 0:
            raise UserError(
                f"--num_processes={num_processes} and --process_id={process_id} need --coordinator=HOST:PORT, by which the processes find each "
                "other; without it each would be a run of its own"
            )
        return
    ends = signal.getsignal(signal.SIGTERM)
    if coordinator == "auto":
        try:
            jax.distributed.initialize(heartbeat_timeout_seconds=LOST_AFTER)
        except ValueError as error:
            raise UserError(
                f"--coordinator=auto: no launcher tells of this run's processes ({first_line(error)}); start it by srun, as "
                "launch/slurm.sbatch does, or name --coordinator=HOST:PORT, --num_processes and --process_id; one process needs none of them"
            ) from error
    else:
        _check(coordinator, num_processes, process_id)
        jax.distributed.initialize(coordinator, num_processes, process_id, heartbeat_timeout_seconds=LOST_AFTER)
    # JAX has SIGTERM noted for a question that nobody here asks, so that it would end nothing before the training loop catches it.
    if ends is not None:  # None: a handler of another language's, from before
        signal.signal(signal.SIGTERM, ends)
    # JAX takes a process that Slurm or Open MPI started for one of as many as the node has GPUs.
    if _alone_on_node() and not os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        jax.config.update("jax_cuda_visible_devices", "all")
        jax.config.update("jax_rocm_visible_devices", "all")


def check_devices() -> None:
    """As check_alike, of the devices of all processes that have joined."""
    check_alike(device.process_index for device in jax.devices())


def check_alike(processes: Iterable[int]) -> None:
    """Raises UserError where some process of the run has more devices than another. processes: the process of each device."""
    counts = Counter(processes)
    if len(set(counts.values())) > 1:
        told = ", ".join(f"process {index} has {count}" for index, count in sorted(counts.items()))
        raise UserError(
            f"the processes of a run need as many devices each, and {told}; CUDA_VISIBLE_DEVICES takes some from a process"
        )


def part() -> None:
    """Leaves the other processes of the run once all have come here, so that none takes another's end for its death."""
    if jax.process_count() > 1:
        jax.distributed.shutdown()


def _check(coordinator: str, num_processes: int, process_id: int) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(
            f"--coordinator={coordinator} is neither auto nor HOST:PORT of process 0, such as node0:1234; any free port of it will do"
        )
    if num_processes < 1 or not 0 <= process_id < num_processes:
        raise UserError(
            f"--process_id={process_id} must lie in 0..num_processes-1, and --num_processes={num_processes} must be positive"
        )


def _alone_on_node() -> bool:
    """Whether Slurm or Open MPI started this process, and no other on its node. Open MPI's word comes first, as in JAX: under Slurm its
    mpirun has srun start one daemon a node, whose variables the processes inherit."""
    if beside := os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
        return beside == "1"
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS")
    return tasks is not None and tasks == os.environ.get("SLURM_STEP_NUM_NODES")
