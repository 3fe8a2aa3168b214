"""Freed memory stays with the process, until it is given back: later steps map no new pages. In a process of its own, since malloc is global."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys, time
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: with pages of 2 MB, as some machines have, few are mapped either way
from jdistill.core.memory import give_back_freed_memory, keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
import jax, jax.numpy as jnp

# Two products, so that the 64 MB between them are scratch memory of the program.
step = jax.jit(lambda x, w: jnp.tanh(x @ w) @ w.T)
x = jnp.ones((4096, 16))
w = jnp.ones((16, 4096))
faults = []
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step(x, w).block_until_ready()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
before = resident()
for _ in range(100):  # the step's own thread frees its memory a moment after the result is there, on a busy core a long one
    give_back_freed_memory()
    if before - resident() > 50e6:
        break
    time.sleep(0.1)
print(kept, sorted(faults[10:])[5], before - resident())
"""


@pytest.mark.skipif(os.confstr("CS_GNU_LIBC_VERSION") is None, reason="glibc's malloc only")
def test_later_steps_map_no_new_pages_until_all_are_given_back():
    def faults(mode: str) -> list[str]:
        run = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
        return run.stdout.split()

    asked, later, _ = faults("leave")
    assert asked == "None" and int(later) > 0.3 * 64e6 / os.sysconf("SC_PAGE_SIZE")
    asked, later, given_back = faults("keep")
    assert asked == "True" and int(later) < 100
    assert int(given_back) > 50e6
