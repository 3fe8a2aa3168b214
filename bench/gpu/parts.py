"""The parts of the GPU bench in the order of their worth, and what a part is made of: rows, each measured by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What every part is told.

    Args:
      toy: a rehearsal on a CPU, with tiny models and batches.
      folder: for files that a part makes; those of parts before it are still there.
      deadline: of the part, by time.monotonic, which all processes of a machine share.
    """

    toy: bool
    folder: Path
    deadline: float

    def pick(self, whole: Any, toy: Any) -> Any:
        """The first of the two on a GPU, the second in a rehearsal."""
        return toy if self.toy else whole

    def seconds_left(self) -> float:
        """Until the part is stopped."""
        return self.deadline - time.monotonic()


@dataclass(frozen=True)
class Cell:
    """One row of a part before it is measured.

    Args:
      labels: what the row is of, such as its batch size.
      measure: gives the row's figures; may raise, which costs this row alone.
      seconds: that it takes on a GPU, about; with fewer left it is not begun.
    """

    labels: Row
    measure: Callable[[], Row] = field(repr=False)
    seconds: float = 10.0


@dataclass(frozen=True)
class Part:
    """A part of the bench, which runs in a process of its own.

    Args:
      name: of its rows in the results.
      source: MODULE:FUNCTION that gives the cells, (Setting) -> an iterable of Cell.
      limit: seconds after which it is stopped.
      asks: what it answers, in words.
      peer: another library's, whose tokenizer's threads would wait for one another under our setting of malloc.
    """

    name: str
    source: str
    limit: float
    asks: str
    peer: bool = False

    def cells(self, setting: Setting) -> Iterable[Cell]:
        """The rows that it has to measure, the most wanted first."""
        from importlib import import_module

        module, _, function = self.source.partition(":")
        cells: Iterable[Cell] = getattr(import_module(module), function)(setting)
        return cells


PARTS = (
    Part("rates", "gpu.rates:cells", 50, "the card's own rates, by which the others are judged"),
    Part("simtde", "gpu.steps:simtde", 110, "SimTDE's step, packed, bfloat16, batches of 256 to 65,536"),
    Part("training", "gpu.training:ours", 90, "our training with answers at hand, tokenising and compiling included"),
    Part("trainer", "gpu.training:theirs", 80, "sentence-transformers' trainer on the same text", peer=True),
    Part("ibkd", "gpu.steps:ibkd", 100, "IBKD's step, packed, bfloat16, batches of 256 to 65,536"),
    Part("encoding", "gpu.encoding:ours", 75, "the teacher's answers by Encoder.encode"),
    Part("encoder", "gpu.encoding:theirs", 50, "the same by SentenceTransformer.encode", peer=True),
    Part("lstm", "gpu.lstm:cells", 60, "the LSTM by cuDNN and by our scan, and cuDNN's call on eight devices"),
    Part("attention", "gpu.attention:cells", 45, "attention by cuDNN, by XLA and our own"),
    Part("judging", "gpu.judging:cells", 75, "D2LLM's judge"),
    Part("steps", "gpu.steps:others", 240, "both steps in float32 and padded"),
)  # fmt: skip
BUDGET = 540.0  # seconds of all parts together
ENOUGH = 5.0  # seconds; with fewer left a part is not begun
