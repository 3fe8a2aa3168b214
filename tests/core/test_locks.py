"""A lock dies with its process, and a file system without locks is said."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jdistill.core import errors
from jdistill.core.errors import UserError
from jdistill.core.locks import only_one


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from jdistill.core.locks import only_one\n"
        "with only_one(Path(sys.argv[1]), Path('there'), 'a run'): print('held', flush=True); time.sleep(100)\n"
    )
    path = tmp_path / "lock"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    said = f"there is in use by a run of another process \\(process {process.pid} on"
    with pytest.raises(UserError, match=said), only_one(path, Path("there"), "a run"):
        pass
    process.kill()
    process.wait()
    with only_one(path, Path("there"), "a run"):
        assert path.exists()
    assert not path.exists()


def test_a_file_system_without_locks_is_said(tmp_path: Path, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    with caplog.at_level("WARNING", logger="jdistill"), only_one(tmp_path / "lock", tmp_path, "a run"):
        pass
    assert "without locks" in caplog.text


def test_a_link_in_a_locks_place_is_not_followed(tmp_path: Path) -> None:
    """Folders travel with their links: what one leads to would be emptied, and the link taken away."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with (
        pytest.raises(UserError, match="lock is a link, and no lock of ours"),
        only_one(tmp_path / "lock", tmp_path, "a run"),
    ):
        pass
    assert (tmp_path / "mine").read_text() == "mine" and (tmp_path / "lock").is_symlink()


def test_nor_is_one_in_the_place_of_a_crashs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_crash_folder", tmp_path)
    monkeypatch.setattr(errors.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "crash.txt").symlink_to(tmp_path / "mine")
    kept = tmp_path / f"jdistill-crash-{os.getpid()}.txt"
    assert str(kept) in errors._crash(ZeroDivisionError("of ours")) and (tmp_path / "mine").read_text() == "mine"
    assert kept.stat().st_mode & 0o777 == 0o600  # it holds the command


def test_a_command_with_a_byte_of_no_letter_is_noted_all_the_same(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["jdistill", "--out=caf\udce9"])
    with only_one(tmp_path / "lock", tmp_path, "a run"):
        assert "--out=caf" in (tmp_path / "lock").read_text()
    monkeypatch.setattr(errors, "_crash_folder", tmp_path)
    errors._crash(ZeroDivisionError("of ours"))
    kept = (tmp_path / "crash.txt").read_text()
    assert "--out=caf" in kept and "ZeroDivisionError: of ours" in kept


def test_a_lock_that_a_networks_server_has_removed_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, asked = fcntl.flock, []

    def stale_once(handle: int, how: int) -> None:
        asked.append(how)
        if len(asked) == 1:
            raise OSError(errno.ESTALE, "Stale file handle")
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", stale_once)
    with only_one(tmp_path / "lock", tmp_path, "a run"):
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on")
    assert len(asked) == 2
