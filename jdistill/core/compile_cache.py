"""Compiled programs kept on disk, so that a resumed run, a second command or the next trial of a sweep does not wait for them."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import jax

from jdistill.core.errors import UserError
from jdistill.core.files import default_folder

MOST_BYTES = 2 * 2**30  # the programs not used for longest go first


def keep_compiled_programs() -> None:
    """Turns JAX's persistent compilation cache on, in jdistill's cache folder; does nothing where the user has set one."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR") or getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    try:
        # A program for one CPU may crash on another that shares this home folder.
        folder = default_folder() / "compiled" / machine_digest()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, UserError):
        return  # no home, or one that cannot be written to: compile anew each time
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def machine_digest() -> str:
    """A hash of the processor's model and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about = [line for line in dict.fromkeys(lines) if line.startswith(("flags", "Features", "model name"))]
    except OSError:
        about = [platform.processor()]
    return hashlib.blake2b("\n".join([platform.machine(), *about]).encode(), digest_size=8).hexdigest()
