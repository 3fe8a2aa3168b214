"""--dry_run --machine: what a stage's step would take on a machine that is not there, in words."""

from __future__ import annotations

from collections.abc import Iterator

import jax
from ml_collections import ConfigDict

from jdistill.core.machines import Machine
from jdistill.run.advice import Needs, suggestions
from jdistill.run.compiled_step import CompiledStep, compile_step
from jdistill.run.program import Program
from jdistill.run.program_costs import Costs
from jdistill.train.dataset import Data
from jdistill.train.method import Method

SHAPES = 2  # the commonest of a stage, each of which is compiled
LARGEST = 5  # arrays that are named
OWN_SHARE = 0.75  # of a GPU's memory, which JAX takes unless it is told another


def describe_on(
    machine: Machine, mesh: jax.sharding.Mesh, name: str, cfg: ConfigDict, method: Method, data: Data
) -> Iterator[str]:
    """What a stage's step takes on a machine, as lines of text: of the commonest shapes of its batches. Within sharding.planning(mesh)."""
    yield _line("stage", f"{name}, of method {cfg.method}, on {machine}")
    for shape in data.batches.shapes_used()[:SHAPES]:
        batch = data.batch(data.step_with(shape))
        compiled = compile_step(cfg, method, batch, machine, mesh)
        share = data.batches.capacity(shape) / cfg.batch_size
        yield _line("step", f"{cfg.batch_size:,} {data.unit}, {share:,.0f} tokens each with padding")
        yield from describe_program(compiled, cfg, machine, name)


def describe_program(compiled: CompiledStep, cfg: ConfigDict, machine: Machine, stage: str = "") -> Iterator[str]:
    """A compiled step's memory, largest arrays, collectives, FLOPs and least time, as lines of text."""
    memory, gpu = compiled.memory, machine.gpu
    parts = ", ".join(f"{bytes_in_words(memory[part])} {part}" for part in ("state", "frozen", "batch", "scratch"))
    yield _line(
        "memory",
        f"{bytes_in_words(memory['all'])} of {bytes_in_words(gpu.device_memory_size)} a device: {fits(memory['all'], machine)}",
    )
    yield _line("", parts)
    for line in largest_arrays(compiled.program):
        yield _line("array", line)
    exchanged = compiled.costs.collectives
    sizes = [f"{bytes_in_words(size)} {kind}" for kind, size in exchanged.most_common()]
    yield _line("exchange", ", ".join(sizes) or "none: one device")
    yield _line("products", flops_in_words(compiled.costs))
    yield _line("time", compiled.roofline.in_words(cfg.batch_size))
    if host := compiled.program.on_host():
        yield _line("host", f"the step waits for the host: {', '.join(host[:LARGEST])}")
    needs = Needs(memory, gpu.device_memory_size, machine.devices, _largest_dims(compiled.program))
    for advice in suggestions(cfg, needs, stage):
        yield _line("try", advice)


def fits(needed: int, machine: Machine) -> str:
    """Whether so many bytes a device fit, in words."""
    there = machine.gpu.device_memory_size
    if needed > there:
        return "does NOT fit"
    return (
        "fits"
        if needed <= OWN_SHARE * there
        else "fits with XLA_PYTHON_CLIENT_MEM_FRACTION=0.97, where JAX takes 0.75 by itself"
    )


def largest_arrays(program: Program) -> Iterator[str]:
    """The largest arrays of a program, alike ones once: size, shape and what makes them."""
    sizes: dict[tuple[str, str], int] = {}
    counts: dict[tuple[str, str], int] = {}
    for array, instruction in program.arrays():
        what = (str(array), instruction.op_name or instruction.name)
        sizes[what], counts[what] = array.bytes, counts.get(what, 0) + 1
    for what in sorted(sizes, key=lambda what: sizes[what], reverse=True)[:LARGEST]:
        shape, op_name = what
        yield f"{bytes_in_words(sizes[what])} {shape}{f', {counts[what]} times' if counts[what] > 1 else ''}: {op_name}"


def _largest_dims(program: Program) -> tuple[int, ...]:
    """Sizes of the largest array that the step makes; of none of its arguments."""
    made = [array for array, instruction in program.arrays() if instruction.opcode != "parameter"]
    return max(made, key=lambda array: array.bytes).dims if made else ()


def flops_in_words(costs: Costs) -> str:
    """FLOPs of matrix products by their rate, and what could not be counted."""
    names = {"bf16": "bfloat16", "tf32": "TF32", "f32": "float32"}
    counted = [f"{flops / 1e12:,.4g} TFLOP in {names[rate]}" for rate, flops in costs.flops.most_common()]
    unknown = [f"{name} ({times} calls)" for name, times in costs.uncounted.most_common()]
    return (", ".join(counted) or "none") + (f"; not counted: {', '.join(unknown)}" if unknown else "") + " a device"


def bytes_in_words(size: float) -> str:
    """Bytes for people: 1.23 GiB, 4.56 MiB."""
    unit, power = next((pair for pair in (("GiB", 30), ("MiB", 20), ("KiB", 10)) if size >= 2 ** pair[1]), ("B", 0))
    return f"{size / 2**power:,.{2 if power else 0}f} {unit}"


def _line(name: str, value: str) -> str:
    return f"{name:<9} {value}"
