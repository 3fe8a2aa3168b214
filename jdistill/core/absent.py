"""Devices that are not there: a mesh of them, which programs can be compiled for, and read, but not run."""

from __future__ import annotations

import os

import jax
from jax.experimental import topologies

from jdistill.core.errors import UserError, first_line
from jdistill.core.machines import Machine
from jdistill.core.sharding import mesh_of

PLUGIN_IS_MISSING = "needs JAX's plugin for GPUs, which compiles for them without one: pip install -e '.[gpu]'"


def absent_mesh(machine: Machine) -> jax.sharding.Mesh:
    """The GPUs of a machine, host by host, as one axis. Raises UserError where JAX's plugin for them is not installed."""
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")  # which would ask for CUPTI, and for a driver
    try:
        topology = topologies.get_topology_desc(
            platform="cuda",
            topology_name=machine.gpu.name,
            target_config=machine.gpu.target(),
            topology=f"1x{machine.hosts}x{machine.gpus}",
        )
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise UserError(f"--machine: {PLUGIN_IS_MISSING} ({first_line(error)[:120]})") from None
    return mesh_of(topology.devices)
