"""The lock of a run's folder in a store: never two machines at once, and one that is gone is not waited for."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from commands import HANG
from fsspec.implementations.memory import MemoryFileSystem
from mirror_setting import quick_store
from remote_setting import objects

from jdistill.core import store_lock
from jdistill.core.errors import UserError
from jdistill.core.fetched import RUN_FILES
from jdistill.core.remote import Store
from jdistill.core.store_lock import LOCK_OBJECT, StoreLock
from jdistill.run.remote_workdir import mirrored_run


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return quick_store(tmp_path, monkeypatch)


def looked_at(monkeypatch: pytest.MonkeyPatch, *pauses: float) -> list[float]:
    """Grows by each pause between two looks at another's lock. pauses: what the first take, in seconds, for what they are asked to."""
    sleep, looks = time.sleep, []

    def pause(seconds: float) -> None:
        if seconds == store_lock.REFRESH_S / 4:
            seconds = pauses[len(looks)] if len(looks) < len(pauses) else seconds
            looks.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(store_lock.time, "sleep", pause)
    return looks


def test_one_that_stood_still_looks_as_often_before_it_takes_over(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slept while it watched: what it saw last is of before."""
    monkeypatch.setattr(store_lock, "_machine", lambda: "another")
    looks = looked_at(monkeypatch, 2 * store_lock.STALE_S)
    Store(url).write(
        LOCK_OBJECT, json.dumps({"token": "x", "machine": "other", "host": "there", "process": 1}).encode()
    )
    with mirrored_run(url):
        assert len(looks) == 32


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
    looks = looked_at(monkeypatch, store_lock.REFRESH_S / 8)
    with caplog.at_level("INFO", logger="jdistill"), mirrored_run(url):
        assert len(looks) == (32 if machine == "another" else 0)
        assert json.loads(objects(url)[LOCK_OBJECT])["token"] != "x"
    assert ("no sign of life" if machine == "another" else "which is gone") in caplog.text


def test_where_others_processes_cannot_be_seen_a_lock_is_watched(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a /proc that hides them: a live run of another user on this machine looks as one that is gone."""
    alive = StoreLock(Store(url), "a run")
    with alive.held(), monkeypatch.context() as hidden:
        hidden.setattr(store_lock, "_start_of", lambda process: "")
        with pytest.raises(UserError, match="is in use by a run of another process"), mirrored_run(url):
            pass
        assert not alive.lost


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"process": "../1", "machine": 3}'])
def test_a_damaged_lock_is_watched_as_any(url: str, content: bytes) -> None:
    Store(url).write(LOCK_OBJECT, content)
    with mirrored_run(url):
        assert b"token" in objects(url)[LOCK_OBJECT]


def test_a_lock_whose_writing_was_not_answered_in_time_is_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_file, writes = MemoryFileSystem.pipe_file, []

    def answer_lost(self, path, *more, **named):
        pipe_file(self, path, *more, **named)
        writes.append(path)
        if len(writes) == 1:
            raise TimeoutError

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", answer_lost)
    with StoreLock(Store(url), "a run").held():
        assert objects(url).keys() == {LOCK_OBJECT}
    assert not objects(url)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])  # the latter of a shell's background
def test_who_lost_the_lock_stops_and_stores_nothing_more(url: str, handler: Any) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(UserError, match="was taken over by another process"), mirrored_run(url) as folder:
            (folder / "config.json").write_text("{}")
            for _ in range(1000):
                Store(url).write(LOCK_OBJECT, b'{"token": "of another"}')
                time.sleep(0.02)
            pytest.fail("nothing interrupted it")
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert objects(url).keys() == {LOCK_OBJECT, RUN_FILES}
    assert json.loads(objects(url)[RUN_FILES])["files"] == {}


def test_of_two_that_begin_at_once_one_goes_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "_machine", lambda: "")
    ends: list[str] = []
    refused, whole = threading.Semaphore(0), threading.Lock()
    pipe_file = MemoryFileSystem.pipe_file

    def at_once(self: MemoryFileSystem, *args: Any, **more: Any) -> None:  # as a store's own "if there is none" is
        with whole:
            pipe_file(self, *args, **more)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", at_once)

    def begin() -> None:
        try:
            with StoreLock(Store(url), "a run").held():
                ends.append("held")
                for _ in range(3):
                    refused.acquire(timeout=HANG)
        except UserError:
            ends.append("refused")
            refused.release()

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == ["held", "refused", "refused", "refused"]


def test_a_store_that_writes_over_whatever_is_there_takes_nobodys_lock(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some of S3's kind do, which pass over the question whether there is an object."""
    pipe_file = MemoryFileSystem.pipe_file

    def write_over(self: MemoryFileSystem, path: str, content: bytes, mode: str = "overwrite", **more: Any) -> None:
        pipe_file(self, path, content, mode="overwrite", **more)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", write_over)
    alive = StoreLock(Store(url), "a run")
    with alive.held():
        with pytest.raises(UserError, match="is in use by a run of another process"), mirrored_run(url):
            pass
        alive.check()
    assert not objects(url)
