"""A run's folder in a store of this process's memory, and what is written there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from remote_setting import enter_machine

from jdistill.core import remote, run_mirror, store_lock
from jdistill.core.remote import Store
from jdistill.core.run_mirror import RunMirror
from jdistill.core.store_lock import StoreLock


def quick_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new one, whose clocks run fast, for the first of several machines."""
    enter_machine(monkeypatch, tmp_path / "one")
    for module, name, value in (
        (remote, "PAUSES", (0.0, 0.0)),
        (store_lock, "REFRESH_S", 0.05),
        (store_lock, "STALE_S", 0.4),
        (store_lock, "SETTLE_S", 0.05),
        (run_mirror, "LOOK_EVERY_S", 600.0),  # what is stored when is each test's own
    ):
        monkeypatch.setattr(module, name, value)
    return f"memory://{tmp_path.name}/run"


def open_mirror(url: str) -> RunMirror:
    store = Store(url)
    mirror = RunMirror(store, StoreLock(store, "a run"))
    mirror.fetch()
    return mirror


def write_checkpoint(folder: Path, step: int, content: str = "") -> None:
    for name in ("state/a", "state/b", "about/metadata"):
        path = folder / "distil" / "checkpoints" / str(step) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{step} {name} {content}")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def wait_until(happens) -> None:
    deadline = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)
