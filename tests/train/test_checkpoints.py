"""Which checkpoints stay."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import pytest

from jdistill.train.checkpoint import Checkpoints

SCORES = {2: 5.0, 4: 1.0, 6: 5.0, 8: 2.0, 10: 3.0, 12: 4.0, 13: 1.0}  # every 2 steps, and the last


def kept(folder: Path, interruptions: tuple[int, ...]) -> list[int]:
    """The steps that are there at the end of a run that signals stopped at `interruptions`, where it saves without a score."""
    checkpoints = Checkpoints(folder, 2, 2)
    for step in sorted({*SCORES, *interruptions}):
        checkpoints.save(step, {"a": jnp.ones(3)}, {}, SCORES.get(step))
        if step in interruptions:
            checkpoints.close()
            checkpoints = Checkpoints(folder, 2, 2)
            assert checkpoints.steps()[-1] == step
    checkpoints.wait()
    checkpoints.drop_old(13)
    found = checkpoints.steps()
    checkpoints.close()
    return found


@pytest.mark.parametrize("interruptions", [(), (3,), (7, 9), (11,), (1, 5)])
def test_an_interrupted_run_keeps_what_another_keeps(tmp_path: Path, interruptions: tuple[int, ...]) -> None:
    assert kept(tmp_path / "checkpoints", interruptions) == [6, 12, 13]  # the newest of the two best, and the last two
