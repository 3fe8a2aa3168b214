"""A lock dies with its process, and a file system without locks is said."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

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
