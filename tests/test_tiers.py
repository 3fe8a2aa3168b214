"""The tiers of the suite: what is fast starts no process, and a skip that nobody listed fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import conftest
import pytest
import skips
from commands import HANG, ROOT

TESTS = ROOT / "tests"


def test_what_is_fast_is_there_and_starts_no_process() -> None:
    names = [line for line in (TESTS / "fast.txt").read_text().splitlines() if not line.startswith("#")]
    assert names == sorted(set(names)) and len(names) > 15
    for name in names:
        assert not re.search(r"\bsubprocess\b|\bPopen\b", (TESTS / name).read_text()), name


def test_what_compiles_as_users_do_is_there() -> None:
    names = [line for line in (TESTS / "users_flags.txt").read_text().splitlines() if not line.startswith("#")]
    assert names
    for name in names:
        path, _, function = name.partition("::")
        assert f"def {function.partition('[')[0] or 'test_'}" in (TESTS / path).read_text(), name
    assert "users_flags.txt" in (ROOT / "launch" / "test.sh").read_text()


@pytest.mark.parametrize(
    "reason, passes, workers",
    [
        ("the shared corpus is not here", True, 0),
        ("I did not feel like it", False, 0),
        ("I did not feel like it", False, 2),
    ],
)
def test_a_skip_that_nobody_listed_fails(tmp_path: Path, reason: str, passes: bool, workers: int) -> None:
    """Shown of a small suite, whose conftest has the suite's own hook."""
    assert conftest.pytest_sessionfinish is skips.pytest_sessionfinish
    (tmp_path / "conftest.py").write_text("from skips import pytest_sessionfinish\n")
    (tmp_path / "test_it.py").write_text(
        f"import pytest\ndef test_it(): pytest.skip({reason!r})\ndef test_that(): pass\n"
    )
    env = os.environ | {"JDISTILL_ONLY_LISTED_SKIPS": "1", "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=HANG)
    assert (done.returncode == 0) == passes, done.stdout[-2000:]
    assert ("test_it: " in done.stdout and reason in done.stdout) != passes
