"""A stage's programs, compiled by a thread of their own while its first batch waits for the teacher's answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import jax

from jdistill.core import sharding
from jdistill.train.calls import Call, calls
from jdistill.train.dataset import Data


@contextmanager
def compiling(expected: Sequence[Call], compile_for: Callable[[Call], object]) -> Iterator[None]:
    """Compiles for one call after another until the block ends; what is under way then is waited for.

    Raises: what compiling raised, unless the block did.
    """
    over = threading.Event()

    def go_on() -> None:
        for call in expected:
            if over.is_set():
                return
            compile_for(call)

    with ThreadPoolExecutor(1, "compiling") as thread:
        under_way = thread.submit(go_on)
        try:
            yield
        finally:
            over.set()
        under_way.result()


def expected_calls(data: Data, first: int, most: int, mesh: jax.sharding.Mesh) -> list[Call]:
    """A call of each shape that a stage will see, its next one foremost, then the commonest; nobody is asked for their answers.

    Of several processes each expects the next one alone: how far the others come meanwhile is not known, and they may have to compile a
    program together.

    Args:
      data: of which those without made-up batches give no calls.
      first: the next step.
      most: steps of a call.
      mesh: that the batches are put on.
    """
    if data.made_up is None:
        return []
    shapes = dict.fromkeys([data.batches.at(first)[0], *data.batches.shapes_used()])
    steps = [first, *map(data.step_with, list(shapes)[1:])]
    unasked = replace(data, rows_of=data.made_up)
    if sharding.process_count() > 1:
        steps = steps[:1]
    return [next(calls(unasked, step, step + most, most, step + most + 1, mesh)) for step in steps]
