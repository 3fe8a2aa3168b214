"""A run inside the test's process that ends right after a checkpoint: in the place of a killed one, whose start takes ten seconds more."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from commands import run_inside

from jdistill.train.checkpoint import Checkpoints


class Stopped(Exception):
    """In the place of a kill."""


def run_to(step: int, arguments: list[str], stage: str = "distil") -> None:
    """The command up to where the checkpoint of that step of a stage is on disk; nothing that comes after a training is done."""
    save = Checkpoints.save

    def stopping(self: Checkpoints, number: int, *more: Any) -> None:
        save(self, number, *more)
        if self.folder.parent.name == stage and number == step:
            self.wait()
            raise Stopped

    with mock.patch.object(Checkpoints, "save", stopping), pytest.raises(Stopped):
        run_inside(arguments)
