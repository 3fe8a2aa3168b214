"""What one run of a compiled program costs a device: FLOPs of its matrix products, bytes of memory, bytes of collectives."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from jdistill.run.program import NO_MEMORY, Instruction, Program

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
GEMMS = ("__cublas$gemm", "__cublas$lt$matmul")  # cuBLAS' products, by the beginnings of their names
FREE = (*NO_MEMORY, "parameter", "constant", "after-all", "partition-id", "iota")
SLICES = ("dynamic-slice", "gather", "slice")  # they read what they give, not all of their operand
# Custom calls that compute no matrix product.
PLAIN_CALLS = ("Sharding", "__cub$", "__triton", "annotate_device_placement", "xla.gpu", "PipelineBoundary")


@dataclass
class Costs:
    """Of one device and one run.

    Args:
      flops: of matrix products, by the rate they run at: bf16, tf32 or f32.
      memory: bytes that its instructions read and write.
      collectives: kind -> bytes of the arrays that are exchanged, the whole of them (an all-gather's result, a reduce-scatter's operand).
      sent: bytes that a device sends for them by rings.
      uncounted: library calls whose FLOPs are not known, with how often each runs.
    """

    flops: Counter[str] = field(default_factory=Counter)
    memory: int = 0
    collectives: Counter[str] = field(default_factory=Counter)
    sent: float = 0.0
    uncounted: Counter[str] = field(default_factory=Counter)


def costs_of(program: Program, devices: int) -> Costs:
    """The costs of a program for so many devices."""
    costs = Costs()
    for computation, instruction, times in program.executed:
        costs.memory += times * _memory(program, computation, instruction)
        kind = instruction.opcode.removesuffix("-start")
        if kind in COLLECTIVES:
            size = _exchanged(program, computation, instruction)
            costs.collectives[kind] += times * size
            costs.sent += times * size * _share_sent(kind, group_size(instruction, devices))
        else:
            _add_flops(costs, program, computation, instruction, times)
    return costs


def _add_flops(costs: Costs, program: Program, computation: str, instruction: Instruction, times: int) -> None:
    if instruction.opcode == "fusion":
        for called in instruction.called:
            for inner in program.computations[called].values():
                _add_flops(costs, program, called, inner, times)
    elif instruction.opcode == "dot":
        left, *_ = program.operands_of(computation, instruction)
        contracted = (left.results[0].dims[axis] for axis in instruction.integers("lhs_contracting_dims"))
        costs.flops[_rate(left, instruction)] += times * _flops(instruction, contracted)
    elif instruction.opcode == "custom-call":
        target = _target(instruction)
        if target.startswith(GEMMS):
            left, *_ = program.operands_of(computation, instruction)
            costs.flops[_rate(left, instruction)] += times * _flops(instruction, _cublas_contracted(left, instruction))
        elif not target.startswith(PLAIN_CALLS):
            costs.uncounted[target] += times


def _flops(instruction: Instruction, contracted: Iterable[int]) -> int:
    """A multiplication and an addition for each element of the result and each that is contracted."""
    return 2 * math.prod(instruction.results[0].dims) * math.prod(contracted)


def _target(instruction: Instruction) -> str:
    match = re.search(r'custom_call_target="([^"]*)"', instruction.details)
    return match[1] if match else ""


def _cublas_contracted(left: Instruction, instruction: Instruction) -> list[int]:
    match = re.search(r'"lhs_contracting_dimensions":(\[[^\]]*\])', instruction.details)
    return [left.results[0].dims[int(axis)] for axis in json.loads(match[1])] if match else []


def _rate(left: Instruction, instruction: Instruction) -> str:
    """float32 operands are rounded to TF32, unless the program asks for all of their bits."""
    if left.results[0].dtype in ("bf16", "f16"):
        return "bf16"
    return "f32" if re.search(r"\bhighest\b|\bHIGHEST\b|dot_f32_f32_f32\b", instruction.details) else "tf32"


def _exchanged(program: Program, computation: str, instruction: Instruction) -> int:
    """The larger side; the tuple of a started one holds both."""
    operands = sum(operand.bytes for operand in program.operands_of(computation, instruction))
    both = instruction.opcode.endswith("-start") and instruction.bytes > operands
    return max(operands, instruction.bytes - operands if both else instruction.bytes)


def group_size(instruction: Instruction, devices: int) -> int:
    """How many devices exchange with one another."""
    text = re.search(r"replica_groups=(.*)", instruction.details)
    groups = text[1] if text else ""
    if match := re.match(r"\{\{([\d,]*)\}", groups):
        return match[1].count(",") + 1
    if match := re.match(r"\[\d+,(\d+)\]<=", groups):
        return int(match[1])
    if match := re.match(r"mesh\[([^\]]*)\] \{([^}]*)\}", groups):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", match[1])}
        return math.prod(sizes[name] for name in re.findall(r"'([^']+)'", match[2]))
    return devices


def _share_sent(kind: str, group: int) -> float:
    """Of the exchanged bytes, what a device of a ring sends."""
    if kind == "collective-permute":
        return 1.0
    return (2 if kind == "all-reduce" else 1) * (group - 1) / group


def _memory(program: Program, computation: str, instruction: Instruction) -> int:
    """Bytes read and written. What is sliced counts as its slices, and what is changed in place as what is written."""
    if instruction.opcode in FREE or instruction.opcode.endswith("-done"):
        return 0
    operands = program.operands_of(computation, instruction)
    if instruction.opcode in SLICES:
        return 2 * instruction.bytes
    if instruction.opcode == "dynamic-update-slice":
        return 2 * operands[1].bytes
    if instruction.opcode != "fusion":
        return instruction.bytes + sum(operand.bytes for operand in operands)
    inner = program.computations[instruction.called[0]]
    root = next(part for part in inner.values() if part.is_root)
    written = instruction.bytes
    if root.opcode == "dynamic-update-slice" and root.operands[1] in inner:
        written = inner[root.operands[1]].bytes
    return written + sum(_read_by(inner, number, operand.bytes, root) for number, operand in enumerate(operands))


def _read_by(inner: dict[str, Instruction], number: int, size: int, root: Instruction) -> int:
    """Of a fusion's operand, the bytes that it reads."""
    name = next(part.name for part in inner.values() if part.opcode == "parameter" and part.number == number)
    users = [part for part in inner.values() if name in part.operands]
    if root.opcode == "dynamic-update-slice" and users == [root] and root.operands[0] == name:
        return 0
    sliced = [part for part in users if part.opcode in SLICES and part.operands[0] == name]
    return min(size, sum(part.bytes for part in sliced)) if users and len(sliced) == len(users) else size
