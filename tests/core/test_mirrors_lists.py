"""Which list of a run's files in a store is whose: of who took over, of an answer that was lost, of a sweep that cleared up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from mirror_setting import contents, open_mirror, quick_store, wait_until, write_checkpoint
from remote_setting import enter_machine, objects

from jdistill.core import run_mirror
from jdistill.core.errors import UserError
from jdistill.core.fetched import RUN_FILES
from jdistill.core.remote import Store, StoreError
from jdistill.core.store_lock import LOCK_OBJECT
from jdistill.core.stored_checkpoints import ENDED
from jdistill.run.remote_workdir import mirrored_run


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return quick_store(tmp_path, monkeypatch)


def steps_listed(url: str) -> set[str]:
    return {name.split("/")[2] for name in json.loads(objects(url)[RUN_FILES])["files"] if "/" in name}


@pytest.mark.parametrize("looks_meanwhile", [False, True])
def test_one_that_was_stopped_stores_nothing_over_who_took_over_and_ended(
    url: str, looks_meanwhile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-Z: the other has given its lock back long since. It is told while it trains, where it looks before its end."""
    monkeypatch.setattr(run_mirror, "LOOK_EVERY_S", 0.05 if looks_meanwhile else 600.0)
    with pytest.raises(UserError, match="was taken over by another process"), mirrored_run(url) as folder:
        write_checkpoint(folder, 10)
        wait_until(lambda: not looks_meanwhile or "10" in steps_listed(url))
        Store(url).delete([LOCK_OBJECT])  # as who takes over does, who puts its own there, and deletes it
        here = contents(folder)
        with monkeypatch.context() as elsewhere:
            enter_machine(elsewhere, tmp_path / "two")
            two = open_mirror(url)
            write_checkpoint(two.folder, 30)
            two.store_changes()
        write_checkpoint(folder, 20)
        wait_until(lambda: not looks_meanwhile)
        pytest.fail("nothing interrupted it") if looks_meanwhile else None
    assert "30" in steps_listed(url) and "20" not in steps_listed(url)
    assert contents(folder).keys() > here.keys()  # what it did is still there


def test_a_list_whose_answer_was_lost_is_still_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stored, and nobody knows; the next one is not stored, and the process is killed."""
    mirror, pipe_file = open_mirror(url), MemoryFileSystem.pipe_file

    def answer_lost(self: MemoryFileSystem, path: str, *more: object, **named: object) -> None:
        pipe_file(self, path, *more, **named)
        raise TimeoutError

    def away(*_: object, **__: object) -> None:
        raise ConnectionError("gone")

    for step, how in ((10, answer_lost), (20, away), (30, away)):
        write_checkpoint(mirror.folder, step)
        with monkeypatch.context() as broken:
            broken.setattr(MemoryFileSystem, "pipe_file", how)
            with pytest.raises(StoreError):
                mirror.store_changes()
    assert steps_listed(url) == {"10"}
    again = open_mirror(url)
    assert {name.split("/")[2] for name in contents(again.folder)} == {"10", "20", "30"}
    again.store_changes()
    assert steps_listed(url) == {"10", "20", "30"}


@pytest.mark.parametrize("cleared", [True, False])
def test_checkpoints_that_were_cleared_are_no_lost_ones(url: str, cleared: bool) -> None:
    """Of a sweep's trials, which ended while the store was away; a cleaner of caches leaves no word of it."""
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 10)
    (mirror.folder / "study.log").write_text("one")
    mirror.store_changes()
    (mirror.folder / "study.log").write_text("one and two")
    shutil.rmtree(mirror.folder / "distil" / "checkpoints")
    if cleared:
        (mirror.folder / "distil" / f"checkpoints{ENDED}").touch()
    again = open_mirror(url)
    assert (again.folder / "study.log").read_text() == ("one and two" if cleared else "one")
    assert (again.folder / "distil" / "checkpoints").exists() != cleared


def test_a_look_that_a_change_of_checkpoints_falls_into_is_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the list named neither the old one nor the new, and the old one were deleted while the new one is on its way."""
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 200)
    mirror.store_changes()
    files, looks = mirror._files, []

    def changing() -> dict:
        looks.append(len(looks))
        if len(looks) == 2:
            write_checkpoint(mirror.folder, 300)
            shutil.rmtree(mirror.folder / "distil/checkpoints/200")
        return files()

    monkeypatch.setattr(mirror, "_files", changing)
    mirror.store_changes()
    assert steps_listed(url) == {"300"} and len(looks) >= 4
