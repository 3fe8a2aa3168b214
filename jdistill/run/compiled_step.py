"""A stage's step compiled for a machine that need not be there: its program, its memory, its costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.machines import Machine
from jdistill.core.types import Tree
from jdistill.run.program import Program, read_program
from jdistill.run.program_costs import Costs, costs_of
from jdistill.run.roofline import Roofline, roofline_of
from jdistill.train.method import Method
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import configured_step, frozen_layout, jit_step, state_layout

# Which of a product's two ways is the faster is found on the device. Without one XLA takes Triton for all, with tiles that nobody chose:
# scratch that a run would not have, minutes of compiling, and for some shapes of a 7B no tiles at all.
PRODUCTS_BY_CUBLAS = {"xla_gpu_enable_triton_gemm": False}


@dataclass(frozen=True)
class CompiledStep:
    """A stage's step, compiled for a machine.

    Args:
      program: what one device runs.
      memory: bytes a device, by what for: state, frozen, batch, scratch, and all of it at its highest.
      costs: of one run, a device.
      roofline: the least time of it.
    """

    program: Program
    memory: dict[str, int]
    costs: Costs
    roofline: Roofline


def compile_step(
    cfg: ConfigDict, method: Method, batch: dict[str, np.ndarray], machine: Machine, mesh: jax.sharding.Mesh
) -> CompiledStep:
    """The step of a stage for a machine that need not be there; no array is moved, and nothing is run.

    Args:
      cfg: the stage's config.
      method: whose arrays may be abstract.
      batch: of all processes, [batch_size, ...] each, likewise.
      mesh: the machine's devices (core.absent).

    Raises: UserError for a batch that cannot be split evenly over the devices.
    """
    with sharding.planning(mesh):
        optimizer = make_optimizer(cfg, 1000)
        state = state_layout(method, optimizer, mesh, cfg.shard_params)
        frozen, rows = frozen_layout(cfg, method, mesh), sharding.rows_layout(batch, mesh)
        step: Any = jit_step(configured_step(cfg, method, optimizer, mesh), mesh, state)
        lowered = step.trace(state, frozen, rows).lower(lowering_platforms=("cuda",))
        compiled = lowered.compile(compiler_options=PRODUCTS_BY_CUBLAS)
    usage, program = compiled.memory_analysis(), read_program(compiled.as_text())
    beside = usage.temp_size_in_bytes + usage.output_size_in_bytes - usage.alias_size_in_bytes
    memory = {name: device_bytes(tree) for name, tree in (("state", state), ("frozen", frozen), ("batch", rows))}
    memory |= {"scratch": beside, "all": usage.argument_size_in_bytes + beside}
    costs = costs_of(program, mesh.size)
    return CompiledStep(program, memory, costs, roofline_of(costs, machine))


def device_bytes(tree: Tree) -> int:
    """What abstract arrays take on one device of those that they are split over."""
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape), dtype=np.int64)) * np.dtype(x.dtype).itemsize
        for x in jax.tree.leaves(tree)
    )
