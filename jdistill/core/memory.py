"""What the C library does with memory that a step frees: it stays with the process, for the next step, until it is given back."""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # mallopt's parameters, as glibc's malloc.h numbers them


def keep_freed_memory() -> bool:
    """Tells malloc to give nothing back to the system. True if it was told, False where the C library is not glibc.

    XLA's CPU takes one block for all of a step's activations and frees it after the step. By default malloc maps such
    a block anew each time, and the kernel clears every page of it: an eighth of a training step (docs/performance.md). With
    one arena, no mappings and no trimming the same pages are used again. The process then holds its peak until give_back_freed_memory.

    To be called at the start of a command, before numpy and JAX have threads: an arena that a thread already has cannot be
    taken back, and large blocks in it are mapped anew each time. A library must not decide this for its host, so importing
    jdistill does not.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # -1 as a threshold: never trim. All three answer 1 when they took the value.
    return all(mallopt(name, value) == 1 for name, value in ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)))


def give_back_freed_memory() -> None:
    """Gives the system all pages that nothing is in, of which a kept heap has many once its steps have another size. The next step
    maps anew what it needs, so this is for where sizes change: a new width, a stage's end. Nothing where the C library is not glibc."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
