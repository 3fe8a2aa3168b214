"""Runs of jdistill.main: as a process, as users start them, or inside the test's own, which saves ten seconds of imports."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

from absl import flags

from jdistill import main
from jdistill.config.flags import define_config
from jdistill.core.errors import UserError
from jdistill.core.progress import log

ROOT = Path(__file__).parents[1]
HANG = (
    1800  # seconds after which a process counts as one that hangs; none is so slow, on one core and beside another load
)


def command(config: str, workdir: Path, settings: dict[str, object]) -> list[str]:
    """What a user types, with `settings` as --config.key=value."""
    where = ["--config", config, "--workdir", str(workdir)]
    return [sys.executable, "-m", "jdistill.main", *where, *(f"--config.{k}={v}" for k, v in settings.items())]


def environment() -> dict[str, str]:
    return os.environ | {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}


def run(arguments: list[str], **more: str) -> subprocess.CompletedProcess:
    """The command in a process of its own; `more` are variables of its environment."""
    env = environment() | more
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=HANG, env=env)


def in_a_process_without_jdistill(code: str, folder: Path) -> str:
    """Runs `code` where importing jdistill fails."""
    guard = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'jdistill': raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", guard + code, str(folder)], capture_output=True, text=True, timeout=HANG, cwd=folder
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def free_port() -> int:
    """A port of this machine that nobody listens at, below those that the system gives out by itself: one of these could be
    another's before the process that is told it opens it. Each of the suite's workers has ports of its own, drawn by the system:
    importing mteb seeds Python's draws, alike in every worker, and two coordinators may listen at one port, each answering the
    other's processes."""
    first = 20_000 + 1_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 12)
    for port in random.SystemRandom().sample(range(first, first + 1_000), 100):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def run_inside(arguments: list[str], folder: Path = ROOT) -> subprocess.CompletedProcess:
    """The same command in this process, with `folder` as the current one: exit status, what it printed, and its log and error as stderr."""
    given = flags.FlagValues()
    config = define_config(given)
    workdir = flags.DEFINE_string("workdir", None, "", flag_values=given)
    dry_run = flags.DEFINE_bool("dry_run", False, "", flag_values=given)
    machine = flags.DEFINE_string("machine", "", "", flag_values=given)
    printed, logged, code = io.StringIO(), io.StringIO(), 0
    handler, level = logging.StreamHandler(logged), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    with mock.patch.object(sys, "argv", arguments[2:]):  # which config_flags reads beside what it is given
        given(sys.argv)
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            main.run(config.value, workdir.value, dry_run.value, machine.value)
    except UserError as error:
        logged.write(f"error: {error}\n")
        code = 2
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    return subprocess.CompletedProcess(arguments, code, printed.getvalue(), logged.getvalue())


def wait_for_step(workdir: Path, step: int, process: subprocess.Popen, stage: str = "distil") -> None:
    """Until the run has saved a checkpoint of at least `step`."""
    deadline = time.monotonic() + HANG
    while not any(int(p.name) >= step for p in (workdir / stage / "checkpoints").glob("[0-9]*") if p.name.isdigit()):
        assert process.poll() is None and time.monotonic() < deadline, process.stderr and process.stderr.read()[-2000:]
        time.sleep(0.05)


def start_script(script: Path, devices: int, *arguments: object) -> subprocess.Popen:
    """A script of tests/ in a process with so many devices made up on the CPU."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen) -> None:
    """Waits for a script's end, which must be a good one."""
    _, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0, errors[-3000:]
