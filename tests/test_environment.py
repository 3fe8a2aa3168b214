"""launch/environment.sh makes an environment anew where half of one is left."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import ROOT


@pytest.mark.parametrize("works", [True, False])
def test_half_an_environment_is_made_anew(tmp_path: Path, works: bool) -> None:
    """As a first install leaves one where the system's Python makes no pip. works: whether Python is new enough."""
    (tmp_path / "launch").mkdir()
    shutil.copy(ROOT / "launch" / "environment.sh", tmp_path / "launch")
    for place, code in ((".venv/bin", "exit 1"), ("bin", f'echo "$@" >> {tmp_path}/asked; exit {0 if works else 1}')):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "python").write_text(f"#!/bin/sh\n{code}\n")
        (tmp_path / place / "python").chmod(0o755)
    script = ["bash", str(tmp_path / "launch" / "environment.sh")]
    done = subprocess.run(script, env=os.environ | {"PYTHON": str(tmp_path / "bin" / "python")}, capture_output=True)
    asked = (tmp_path / "asked").read_text()
    assert done.returncode != 0 and ("-m venv --clear .venv" in asked) == works
