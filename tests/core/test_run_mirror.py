"""A run's folder in a store: whole checkpoints or none, on one machine after the other, and a store that is away."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from mirror_setting import contents, open_mirror, quick_store, wait_until, write_checkpoint
from remote_setting import enter_machine, objects

from jdistill.core import run_mirror
from jdistill.core.fetched import RUN_FILES
from jdistill.core.remote import Store, StoreError
from jdistill.run.remote_workdir import mirrored_run


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return quick_store(tmp_path, monkeypatch)


def test_another_machine_goes_on_with_what_was_stored(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mirrored_run(url) as folder:
        (folder / "config.json").write_text("{}")
        write_checkpoint(folder, 10)
        (folder / ".jdistill-new").write_text("half written")
        (folder / "distil" / "checkpoints" / "20.orbax-checkpoint-tmp").mkdir()
        (folder / "distil" / "checkpoints" / "20.orbax-checkpoint-tmp" / "a").write_text("half written")
        whole = {name: content for name, content in contents(folder).items() if "half" not in content.decode()}
    stored = objects(url)
    assert (
        json.loads(stored.pop(RUN_FILES))["files"].keys() == whole.keys() and stored == whole
    )  # the lock is given back
    enter_machine(monkeypatch, tmp_path / "two")
    with mirrored_run(url) as other:
        assert other != folder and contents(other) == whole
        write_checkpoint(other, 20)
        (other / "config.json").write_text('{"changed": 1}')
        of_two = contents(other)
    enter_machine(monkeypatch, tmp_path / "one")
    with mirrored_run(url) as back:
        assert back == folder and contents(back) == of_two


@pytest.mark.parametrize("stored_files", range(4))
def test_a_checkpoint_counts_once_all_of_it_is_stored(
    url: str, stored_files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 10)
    mirror.store_changes()
    write_checkpoint(mirror.folder, 20)
    put_file, puts = MemoryFileSystem.put_file, []

    def put_some(self, *more, **named):
        puts.append(1)
        if len(puts) > stored_files:
            raise PermissionError("as if this machine were gone")
        return put_file(self, *more, **named)

    write, written = MemoryFileSystem.pipe_file, []
    with monkeypatch.context() as broken:
        broken.setattr(MemoryFileSystem, "put_file", put_some)
        if stored_files == 3:  # all of it, and not the list
            broken.setattr(
                MemoryFileSystem,
                "pipe_file",
                lambda *_, **__: written.append(1) or (_ for _ in ()).throw(PermissionError()),
            )
        with pytest.raises(StoreError):
            mirror.store_changes()
    assert MemoryFileSystem.pipe_file is write
    enter_machine(monkeypatch, tmp_path / "two")
    other = open_mirror(url)
    assert {name.split("/")[2] for name in contents(other.folder)} == {"10"}
    assert not any("/20/" in name for name in objects(url))  # what was half there is removed
    enter_machine(monkeypatch, tmp_path / "one")
    again = open_mirror(url)  # the machine is back, and is ahead
    assert {name.split("/")[2] for name in contents(again.folder)} == {"10", "20"}


def test_a_checkpoint_written_again_and_not_listed_is_left_out(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 10)
    write_checkpoint(mirror.folder, 20)
    mirror.store_changes()
    name = "distil/checkpoints/20/state/a"
    (tmp_path / "other").write_text("20 another's")
    Store(url).put(tmp_path / "other", name)
    enter_machine(monkeypatch, tmp_path / "two")
    with caplog.at_level("WARNING", logger="jdistill"):
        other = open_mirror(url)
    assert {name.split("/")[2] for name in contents(other.folder)} == {"10"} and "is left out" in caplog.text
    assert not (other.folder / "distil" / "checkpoints" / "20").exists()


def test_what_a_killed_process_had_half_fetched_goes(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mirrored_run(url) as folder:
        write_checkpoint(folder, 10)
    enter_machine(monkeypatch, tmp_path / "two")
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        killed.setattr(Store, "fetch_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            open_mirror(url)
    (left,) = (tmp_path / "two").rglob(".jdistill-new-*")
    open_mirror(url)
    assert not left.exists()


def test_what_makes_room_is_removed_from_the_store(url: str) -> None:
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 10)
    mirror.store_changes()
    write_checkpoint(mirror.folder, 20)
    shutil.rmtree(mirror.folder / "distil" / "checkpoints" / "10")
    mirror.store_changes()
    assert {name.split("/")[2] for name in objects(url) if "/" in name} == {"20"}


@pytest.mark.parametrize("links", [True, False])
def test_a_checkpoint_that_makes_room_while_it_is_stored_is_stored_whole(
    url: str, links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or, on a file system without links, not at all: a store that is slower than checkpoints come holds one in the end."""
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links")))
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 10)
    put_file, puts = MemoryFileSystem.put_file, []

    def overtaken(self, *more, **named):
        puts.append(1)
        if len(puts) == 2:
            write_checkpoint(mirror.folder, 20)
            shutil.rmtree(mirror.folder / "distil" / "checkpoints" / "10")
        return put_file(self, *more, **named)

    monkeypatch.setattr(MemoryFileSystem, "put_file", overtaken)
    mirror.store_changes()
    enter_machine(monkeypatch, tmp_path / "two")
    other = contents(open_mirror(url).folder)
    assert len(other) == (3 if links else 0) and {name.split("/")[2] for name in other} <= {"10"}
    mirror.store_changes()
    enter_machine(monkeypatch, tmp_path / "three")
    assert {name.split("/")[2] for name in contents(open_mirror(url).folder)} == {"20"}


def test_what_has_not_changed_is_not_stored_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 10)
    mirror.store_changes()
    before = objects(url)[RUN_FILES]
    monkeypatch.setattr(MemoryFileSystem, "put_file", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone")))
    mirror.store_changes()
    open_mirror(url).store_changes()  # a process later
    assert objects(url)[RUN_FILES] == before


def test_a_store_that_is_away_for_a_time_costs_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_mirror, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(run_mirror, "STORE_EVERY_S", 0.02)
    with caplog.at_level("WARNING", logger="jdistill"), mirrored_run(url) as folder:
        with monkeypatch.context() as away:
            away.setattr(MemoryFileSystem, "put_file", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone")))
            write_checkpoint(folder, 10)
            wait_until(lambda: "The run goes on" in caplog.text)
        wait_until(lambda: RUN_FILES in objects(url))
    assert caplog.text.count("The run goes on") == 1


def test_a_store_that_is_away_at_the_end_is_an_error_that_names_the_mirror(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(StoreError, match="All of the run is in .*the same command stores it"),
        mirrored_run(url) as folder,
    ):
        (folder / "config.json").write_text("{}")
        monkeypatch.setattr(
            MemoryFileSystem, "put_file", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone"))
        )


def test_an_error_of_the_run_is_the_error(url: str) -> None:
    with pytest.raises(ZeroDivisionError), mirrored_run(url) as folder:
        (folder / "config.json").write_text("{}")
        raise ZeroDivisionError
    assert objects(url).keys() == {"config.json", RUN_FILES}
