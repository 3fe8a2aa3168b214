"""A run's folder in a store: whole checkpoints or none, two machines one after the other, and never two at once."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from remote_setting import enter_machine, objects

from jdistill.core import remote, run_mirror, store_lock
from jdistill.core.errors import UserError
from jdistill.core.fetched import RUN_FILES
from jdistill.core.remote import Store, StoreError
from jdistill.core.run_mirror import RunMirror
from jdistill.core.store_lock import LOCK_OBJECT, StoreLock
from jdistill.run.remote_workdir import mirrored_run


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
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


def test_a_path_is_given_as_it_is(tmp_path: Path) -> None:
    with mirrored_run(tmp_path / "run") as folder:
        assert folder == tmp_path / "run"
    assert not folder.exists()


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


@pytest.mark.parametrize("name", ["/etc/checkpoints/1/x", "../checkpoints/1/x", "a/../../checkpoints/1/x"])
def test_a_list_whose_names_lead_out_is_refused(url: str, name: str) -> None:
    Store(url).write(RUN_FILES, json.dumps({"files": {name: [1, "x"]}}).encode())
    with pytest.raises(UserError, match="is damaged"):
        open_mirror(url)


def test_what_has_not_changed_is_not_stored_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = open_mirror(url)
    write_checkpoint(mirror.folder, 10)
    mirror.store_changes()
    before = objects(url)[RUN_FILES]
    monkeypatch.setattr(MemoryFileSystem, "put_file", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("gone")))
    mirror.store_changes()
    open_mirror(url).store_changes()  # a process later
    assert objects(url)[RUN_FILES] == before


@pytest.mark.parametrize("lost, fetched", [
    ("distil/checkpoints/10", False), ("distil/checkpoints", True), ("distil/checkpoints/20/state", True), ("config.json", True),
])  # fmt: skip
def test_a_mirror_that_lost_files_is_fetched_anew(url: str, lost: str, fetched: bool) -> None:
    """But not for an old checkpoint, which makes room for the next: what a cleaner of caches takes is not removed from the store."""
    mirror = open_mirror(url)
    (mirror.folder / "config.json").write_text("{}")
    write_checkpoint(mirror.folder, 10)
    write_checkpoint(mirror.folder, 20)
    mirror.store_changes()
    whole = contents(mirror.folder)
    (mirror.folder / lost).rename(mirror.folder.parent / "taken")
    again = open_mirror(url)
    again.store_changes()
    assert (contents(again.folder) == whole) == fetched
    assert ("distil/checkpoints/10/state/a" in objects(url)) == fetched


def test_a_run_that_was_removed_from_the_store_begins_anew(url: str) -> None:
    with mirrored_run(url) as folder:
        (folder / "config.json").write_text("{}")
    Store(url).delete(objects(url))
    with mirrored_run(url) as folder:
        assert not contents(folder)


def test_a_folder_that_was_copied_into_a_store_is_a_run(url: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    Store(url).put(tmp_path / "config.json", "config.json")
    with mirrored_run(url) as folder:
        assert contents(folder) == {"config.json": b"{}"}


def test_a_folder_of_others_files_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    Store(url).put(tmp_path / "mine.txt", "mine.txt")
    with (
        pytest.raises(UserError, match=f"--workdir={url} is not empty and holds no run .it holds mine.txt"),
        mirrored_run(url),
    ):
        pass
    assert objects(url) == {"mine.txt": b"mine"}


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


def wait_until(happens) -> None:
    deadline = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_machine_is_told_who_works_there(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with mirrored_run(url):
        with (
            pytest.raises(UserError, match="is in use by a run of another process .process \\d+ on "),
            mirrored_run(url),
        ):
            pass
        monkeypatch.setattr(store_lock, "_machine", lambda: "another")  # whose processes cannot be looked at
        with pytest.raises(UserError, match="is in use by a run"), mirrored_run(url):
            pass
    with mirrored_run(url):
        pass


@pytest.mark.parametrize("machine", ["another", "this"])
def test_a_lock_without_a_sign_of_life_is_taken_over(
    url: str, machine: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = {
        "token": "x",
        "host": "there",
        "process": 2**22 + 1,
        "started": "1",
        "machine": store_lock._machine() if machine == "this" else "other",
    }
    Store(url).write(LOCK_OBJECT, json.dumps(left).encode())
    started = time.monotonic()
    with caplog.at_level("INFO", logger="jdistill"), mirrored_run(url):
        assert (time.monotonic() - started > 0.4) == (machine == "another")
        assert json.loads(objects(url)[LOCK_OBJECT])["token"] != "x"
    assert ("no sign of life" if machine == "another" else "which is gone") in caplog.text


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"process": "../1", "machine": 3}'])
def test_a_damaged_lock_is_watched_as_any(url: str, content: bytes) -> None:
    Store(url).write(LOCK_OBJECT, content)
    with mirrored_run(url):
        assert b"token" in objects(url)[LOCK_OBJECT]


def test_who_lost_the_lock_stops_and_stores_nothing_more(url: str) -> None:
    with pytest.raises(UserError, match="was taken over by another process"), mirrored_run(url) as folder:
        (folder / "config.json").write_text("{}")
        for _ in range(1000):  # until it is interrupted
            Store(url).write(LOCK_OBJECT, b'{"token": "of another"}')
            time.sleep(0.02)
    assert objects(url).keys() == {LOCK_OBJECT, RUN_FILES}
    assert json.loads(objects(url)[RUN_FILES])["files"] == {}


def test_of_two_that_begin_at_once_one_goes_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "_machine", lambda: "")
    ends: list[str] = []

    def begin() -> None:
        try:
            with StoreLock(Store(url), "a run").held():
                ends.append("held")
                time.sleep(0.8)
        except UserError:
            ends.append("refused")

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["held", "refused", "refused", "refused"]
