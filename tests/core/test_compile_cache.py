"""Compiled programs are kept for the next process, in a folder of this machine's own, unless the user chose one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jdistill.core import compile_cache
from jdistill.core.errors import UserError
from jdistill.core.files import default_folder

CODE = (
    "import jax, jax.numpy as jnp\n"
    "from jdistill.core.compile_cache import keep_compiled_programs\n"
    "keep_compiled_programs()\n"
    "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
    "hits = []\n"
    "jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith('/cache_hits') else None)\n"
    "print(float(jax.jit(lambda x: jnp.sin(x) @ x.T)(jnp.ones((3, 3))).sum()), len(hits))\n"
)


def run(home: Path, **more: str) -> int:
    """How many programs were read from those that are kept."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=env | {"XDG_CACHE_HOME": str(home)} | more, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    value, hits = done.stdout.split()
    assert float(value) > 0
    return int(hits)


def test_programs_are_found_again(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    (machine,) = (tmp_path / "jdistill" / "compiled").iterdir()
    programs = sorted(path.name for path in machine.glob("*-cache"))
    assert programs
    assert run(tmp_path) == len(programs)
    assert sorted(path.name for path in machine.glob("*-cache")) == programs


def test_the_users_own_folder_and_a_home_that_cannot_be_written_to_are_respected(tmp_path: Path) -> None:
    run(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))
    assert not (tmp_path / "jdistill").exists() and any((tmp_path / "mine").iterdir())
    (tmp_path / "file").write_text("")
    run(tmp_path / "file")


def test_without_a_home_folder_nothing_is_kept_and_a_cache_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compile_cache.jax, "config", object())  # names no folder, and takes none
    monkeypatch.setattr(Path, "home", homeless)
    compile_cache.keep_compiled_programs()
    with pytest.raises(UserError, match="no home folder .*; set HOME, or XDG_CACHE_HOME"):
        default_folder()
