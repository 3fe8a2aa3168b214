"""Which checkpoints stay, also on a full disk, and that one which the machine cannot read now is not taken for damaged."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jdistill.core.errors import UserError
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


@pytest.mark.parametrize(
    "refusal",
    [
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Failed to allocate request for 3.00GiB on device ordinal 0"),
        MemoryError(),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE), "array_metadatas"),
        OSError(errno.EIO, os.strerror(errno.EIO), "manifest.ocdbt"),
        ValueError("UNKNOWN: Error reading file: Connection timed out"),
        ValueError("PERMISSION_DENIED: Error opening file: Permission denied"),
    ],
)
def test_what_the_machine_refuses_says_nothing_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2)
    for step in (1, 2):
        checkpoints.save(step, {"a": jnp.full(3, float(step))}, {}, None)
    checkpoints.wait()
    restore = checkpoints.manager.restore

    def refused(step: int, **_: object) -> None:
        raise refusal

    monkeypatch.setattr(checkpoints.manager, "restore", refused)
    with pytest.raises(
        UserError, match=r"checkpoints/2 cannot be read as this machine is .*may be whole.*run the same command again"
    ):
        checkpoints.restore(None)  # type: ignore[arg-type]
    monkeypatch.setattr(checkpoints.manager, "restore", restore)
    step, state, _ = checkpoints.restore(None)  # type: ignore[arg-type]
    assert step == 2 and checkpoints.steps() == [1, 2]
    np.testing.assert_array_equal(state["a"], np.full(3, 2.0))
    checkpoints.close()


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EMFILE])
def test_a_score_that_cannot_be_read_now_is_no_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Without it the best checkpoint would be an old one, and be deleted."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", 1)
    for step, score in ((1, 3.0), (2, 1.0), (3, 2.0)):
        checkpoints.save(step, {"a": jnp.zeros(1)}, {}, score)
    checkpoints.close()
    read_text = Path.read_text

    def refused(self: Path, *more: object) -> str:
        if "1" in self.parts:
            raise OSError(number, os.strerror(number), str(self))
        return read_text(self, *more)

    monkeypatch.setattr(Path, "read_text", refused)
    with pytest.raises(OSError, match=os.strerror(number)):
        Checkpoints(tmp_path / "checkpoints", 1)
    monkeypatch.undo()
    again = Checkpoints(tmp_path / "checkpoints", 1)
    assert again.on_disk() == [1, 3] and again.best_step() == 1
    again.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """Writes beyond a file's first 4 KB fail, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_on_a_full_disk_the_earlier_checkpoints_stay_whole(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2)
    state = {"a": jax.random.normal(jax.random.key(0), (64, 64))}
    checkpoints.save(1, state, {}, None)
    checkpoints.wait()
    refused = r"could not be written to .*checkpoints .*\. Is the disk full\? The earlier checkpoints \[1\] are whole; make room"
    with full_disk(), pytest.raises(UserError, match=f"^a checkpoint {refused}"):
        checkpoints.save(2, state, {}, None)
        checkpoints.wait()
    with full_disk(), pytest.raises(UserError, match=f"^the checkpoint of step 4 {refused}"):
        for step in (3, 4):  # whoever saves again is told of the save before
            checkpoints.save(step, state, {}, None)
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2)  # as the same command again
    step, saved, _ = checkpoints.restore(None)  # type: ignore[arg-type]
    assert step == 1
    np.testing.assert_array_equal(saved["a"], state["a"])
    checkpoints.save(2, state, {}, None)
    checkpoints.wait()
    assert checkpoints.on_disk() == [1, 2]
    checkpoints.close()
