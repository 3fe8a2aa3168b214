"""launch/environment.sh leaves no half of an environment behind, and takes no old Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import ROOT


@pytest.mark.parametrize("new_enough", [True, False])
def test_an_environment_that_cannot_be_made_is_taken_away(tmp_path: Path, new_enough: bool) -> None:
    """As a Python without ensurepip begins one and fails."""
    (tmp_path / "launch").mkdir()
    shutil.copy(ROOT / "launch" / "environment.sh", tmp_path / "launch")
    python = tmp_path / "python"
    half = f"echo made >> {tmp_path}/asked; mkdir -p .venv/bin; cp $0 .venv/bin/python; exit 1"
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit {0 if new_enough else 1}\n{half}\n')
    python.chmod(0o755)
    script = ["bash", str(tmp_path / "launch" / "environment.sh")]
    done = subprocess.run(script, env=os.environ | {"PYTHON": str(python)}, capture_output=True)
    assert done.returncode != 0 and (tmp_path / "asked").exists() == new_enough and not (tmp_path / ".venv").exists()
