"""A compiled program as data: the instructions of XLA's optimised text, which of them run how often, and the arrays they make.

The text is one device's part of the program (compiled.as_text()), of any kind of device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

# Bytes of an element; what is not listed (tokens, opaque) takes none.
ITEM_BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "f8e4m3fn": 1, "f8e5m2": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
    "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16,
}  # fmt: skip
# They name memory that is already there.
NO_MEMORY = ("tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "optimization-barrier")
_ARRAY = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,]*)\]")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")


@dataclass(frozen=True)
class ArrayType:
    """An array's element type, as XLA writes it, and its sizes."""

    dtype: str
    dims: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.dims) * ITEM_BYTES.get(self.dtype, 0)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class Instruction:
    """An instruction of a computation.

    Args:
      name, opcode, operands: as the text has them.
      number: of a parameter, which operand of its caller it is; 0 of all else.
      results: the arrays that it gives, those of a tuple one by one.
      details: what stands behind the operands: attributes, metadata, backend_config.
      is_root: whether it is what its computation gives.
    """

    name: str
    opcode: str
    operands: tuple[str, ...]
    results: tuple[ArrayType, ...]
    details: str
    is_root: bool
    number: int = 0

    @property
    def bytes(self) -> int:
        """Of all that it gives."""
        return sum(array.bytes for array in self.results)

    @property
    def op_name(self) -> str:
        """Where in the traced program it comes from; "" where the compiler made it."""
        match = re.search(r'op_name="([^"]*)"', self.details)
        return match[1].replace("\\", "") if match else ""

    @property
    def called(self) -> tuple[str, ...]:
        """The computations that it runs or applies, in the order of the text."""
        names = re.findall(
            r"\b(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)", self.details
        )
        branches = re.search(r"branch_computations=\{([^}]*)\}", self.details)
        return (*names, *(name.strip().lstrip("%") for name in branches[1].split(","))) if branches else tuple(names)

    def integers(self, attribute: str) -> tuple[int, ...]:
        """Of an attribute such as lhs_contracting_dims={1}; () where there is none."""
        match = re.search(rf"\b{attribute}=\{{([\d,]*)\}}", self.details)
        return tuple(int(number) for number in match[1].split(",") if number) if match else ()


@dataclass
class Program:
    """Computations by name, each its instructions by name in the order in which they run; entry: the name of the first."""

    computations: dict[str, dict[str, Instruction]] = field(default_factory=dict)
    entry: str = ""

    @cached_property
    def executed(self) -> list[tuple[str, Instruction, int]]:
        """(computation, instruction, times) of what runs in one call, fusions as one instruction each.

        Of a conditional all branches count; a loop whose number of rounds the compiler does not tell counts once.
        """
        return list(self._walk(self.entry, 1))

    def _walk(self, computation: str, times: int) -> Iterator[tuple[str, Instruction, int]]:
        for instruction in self.computations[computation].values():
            yield computation, instruction, times
            if instruction.opcode == "while":
                rounds = re.search(r'"known_trip_count":\{"n":"(\d+)"', instruction.details)
                body = re.search(r"\bbody=%?([\w.\-]+)", instruction.details)
                assert body  # every while has one
                yield from self._walk(body[1], times * (int(rounds[1]) if rounds else 1))
            elif instruction.opcode in ("call", "conditional", "async-start"):
                for called in instruction.called:
                    yield from self._walk(called, times)

    def operands_of(self, computation: str, instruction: Instruction) -> list[Instruction]:
        """The instructions that give its operands."""
        there = self.computations[computation]
        return [there[name] for name in instruction.operands if name in there]

    def arrays(self) -> Iterator[tuple[ArrayType, Instruction]]:
        """The arrays that stand in a device's memory at some time, arguments too, each with the instruction that makes it."""
        for computation, instruction, _ in self.executed:
            inner = instruction.opcode == "parameter" and computation != self.entry
            if instruction.opcode not in NO_MEMORY and not inner and not instruction.opcode.endswith("-done"):
                yield from ((array, instruction) for array in instruction.results)

    def on_host(self) -> list[str]:
        """Instructions by which the program waits for the host: callbacks, feeds, and arrays in the host's memory."""
        waits = ("infeed", "outfeed", "send", "recv")
        return [
            instruction.name
            for _, instruction, _ in self.executed
            if instruction.opcode in waits
            or (instruction.opcode == "custom-call" and re.search(r"callback|MoveToHost", instruction.details))
        ]


def read_program(text: str) -> Program:
    """The program of an optimised module's text."""
    program = Program()
    current: dict[str, Instruction] = {}
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = program.computations.setdefault(head[2], {})
            program.entry = head[2] if head[1] else program.entry
        elif match := _INSTRUCTION.match(line):
            instruction = _read_instruction(match[1], match[2], line.lstrip().startswith("ROOT "))
            current[instruction.name] = instruction
    return program


def _read_instruction(name: str, rest: str, is_root: bool) -> Instruction:
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    shape, call = rest[:end], rest[end:].lstrip()
    opening = call.index("(")
    closing = _closing(call, opening)
    opcode, inside, details = call[:opening], call[opening + 1 : closing], call[closing + 1 :]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    arrays = tuple(ArrayType(kind, _dims(dims)) for kind, dims in _ARRAY.findall(shape))
    number = int(inside) if opcode == "parameter" else 0
    return Instruction(name, opcode, operands, arrays, details, is_root, number)


def _dims(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis that opens there is closed."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place
    raise ValueError(f"an instruction that does not end: {text[:200]}")
