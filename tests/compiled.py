"""Programs that the suite compiles: one folder for all processes of a run, begun with those of earlier runs on this machine."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import jax
from jax._src import compilation_cache

from jdistill.core.compile_cache import machine_digest
from jdistill.core.files import default_folder

MOST_BYTES = 2**30  # more is of code that has long changed


def share_compiled_programs() -> None:
    """Sets JAX's cache for this process and those that it starts, unless it was set, as by the process that started this one.

    JAX writes a program in place, so that a process which a test kills may leave a part of one: what is kept for later runs is
    looked at first, and renamed into its place.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    own = Path(tempfile.mkdtemp(prefix="jdistill-tests-"))
    kept = default_folder() / "compiled-by-tests" / f"{machine_digest()}-{jax.__version__}"
    with suppress(OSError):
        kept.mkdir(parents=True, exist_ok=True)
        if sum(path.stat().st_size for path in kept.iterdir()) > MOST_BYTES:
            shutil.rmtree(kept)
        for path in kept.iterdir():
            shutil.copyfile(path, own / path.name)
    atexit.register(_keep, own, kept)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(own)
    for name, value in {"MIN_COMPILE_TIME_SECS": "0", "MIN_ENTRY_SIZE_BYTES": "0", "ENABLE_XLA_CACHES": "none"}.items():
        os.environ[f"JAX_PERSISTENT_CACHE_{name}"] = value
    jax.config.update("jax_compilation_cache_dir", str(own))  # JAX is imported by now
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    # Of a GPU's autotuning, whose folder would be part of each program's key: copied elsewhere, none would be found again.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")


def _keep(own: Path, kept: Path) -> None:
    with suppress(OSError):
        there = {path.name for path in kept.iterdir()}
        for path in own.iterdir():
            if path.name not in there and _is_whole(path):
                beside = kept / f".{os.getpid()}-{path.name}"
                shutil.copyfile(path, beside)
                beside.replace(kept / path.name)
    shutil.rmtree(own, ignore_errors=True)


def _is_whole(path: Path) -> bool:
    try:
        compilation_cache.decompress_executable(path.read_bytes())
    except Exception:  # of whichever compressor JAX has
        return False
    return True
