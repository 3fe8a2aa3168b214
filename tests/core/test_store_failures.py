"""A store that fails: asked again where that may help, one line where not, nothing left out and no secret told."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from remote_setting import enter_machine, put

from jdistill.core import remote
from jdistill.core.remote import Store, StoreError
from jdistill.data.text.sources import read_texts


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    enter_machine(monkeypatch, tmp_path / "here")
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))
    return f"memory://{tmp_path.name}"


def refusing(error: BaseException, times: int = 10**6):
    """In the place of a file system's method: raises so often, then says that there is an empty file."""
    calls: list[int] = []

    def method(self, path, *more, **named):
        calls.append(1)
        if len(calls) <= times:
            raise error
        return {"type": "file", "name": path, "size": 0}

    return method, calls


class NoCredentialsError(Exception):
    """As botocore names its own."""


@pytest.mark.parametrize("error, words, asked", [
    (PermissionError("Access Denied"), "the store refuses .*check the credentials", 1),
    (NoCredentialsError("Unable to locate credentials"), "the store refuses .*check the credentials", 1),
    (ConnectionRefusedError(111, "Connection refused"), "3 times asked .*check its address", 3),
    (RuntimeError("a library's own\nwith a second line"), "a library's own\\).*run the same command again", 3),
])  # fmt: skip
def test_a_store_that_fails_is_one_line(
    bucket: str, error: Exception, words: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, calls = refusing(error)
    monkeypatch.setattr(MemoryFileSystem, "info", method)
    with pytest.raises(StoreError, match=f"^--config.text={bucket}/a.txt: .*{words}") as caught:
        read_texts(f"{bucket}/a.txt")
    assert len(calls) == asked and "\n" not in str(caught.value)


def test_a_server_that_cannot_be_reached_is_not_one_that_lacks_the_object(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec's http says of every failure that the file is not there, and why beside it."""
    unreachable = FileNotFoundError(f"{bucket}/a.txt")
    unreachable.__cause__ = ConnectionRefusedError(111, "Connection refused")
    method, calls = refusing(unreachable)
    monkeypatch.setattr(MemoryFileSystem, "info", method)
    with pytest.raises(StoreError, match="3 times asked .*Connection refused.*check its address"):
        read_texts(f"{bucket}/a.txt")
    assert len(calls) == 3


def test_a_folder_that_cannot_be_listed_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))
    for name in ("a.txt", "sub/b.txt", "sub/deep/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    assert list(Store(f"file://{tmp_path}").files()) == ["a.txt", "sub/b.txt", "sub/deep/c.txt"]
    listed = LocalFileSystem.ls

    def ls(self, path, *more, **named):
        if path.endswith("deep"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return listed(self, path, *more, **named)

    monkeypatch.setattr(LocalFileSystem, "ls", ls)
    with pytest.raises(StoreError, match="does not answer as it should.*Input/output error"):
        Store(f"file://{tmp_path}").files()


def test_messages_and_logs_keep_no_secrets_of_a_url(
    bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = bucket.replace("://", "://bob:hunter2@") + "/t.txt?X-Signature=SECRET"
    method, _ = refusing(ConnectionError(f"cannot connect to {url}"))
    monkeypatch.setattr(MemoryFileSystem, "info", method)
    with caplog.at_level("INFO", logger="jdistill"), pytest.raises(StoreError) as caught:
        read_texts(url)
    said = str(caught.value) + caplog.text
    assert "asked again" in said and "t.txt?…" in said and "hunter2" not in said and "SECRET" not in said


def test_a_store_that_fails_once_is_asked_again(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, calls = refusing(TimeoutError(), times=2)
    monkeypatch.setattr(MemoryFileSystem, "info", method)
    assert Store(f"{bucket}/a").files() == {"": [0, ""]} and len(calls) == 3


def test_a_store_that_says_nothing_is_not_waited_for(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ANSWER_S", 0.05)
    monkeypatch.setattr(MemoryFileSystem, "info", lambda *_, **__: time.sleep(5))
    started = time.monotonic()
    with pytest.raises(StoreError, match="no answer within 0 s"):
        read_texts(f"{bucket}/a.txt")
    assert time.monotonic() - started < 4


def test_a_local_disk_that_refuses_is_not_the_store(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(f"{bucket}/a.txt", b"text")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error in (full, PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "a"))):
        method, calls = refusing(error)
        monkeypatch.setattr(MemoryFileSystem, "get_file", method)
        with pytest.raises(type(error)):
            Store(f"{bucket}/a.txt").fetch("", tmp_path / "a", 4)
        assert len(calls) == 1 and not list(tmp_path.glob(".jdistill-*"))
