"""Commands in forks of this process, which has imported all they need: a case takes a second, not fifteen."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from campaign import faults
from campaign.faults import Fault
from campaign.launches import End, Launch

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1
LONGEST = 120.0  # seconds; what takes longer hangs
# Packages whose modules are imported before the fork, once a command has been seen to import them.
LEARNT = (
    "jdistill",
    "configs",
    "transformers",
    "orbax",
    "matplotlib",
    "sentence_transformers",
    "torch",
    "jax",
    "optuna",
)
FORM_LIBRARIES = ("torch", "sentence_transformers")  # of every export, and slow to import
# Name of a command -> the module that runs it.
COMMANDS = {name: f"jdistill.{name}" for name in ("main", "evaluate", "mine", "compare", "search")}
COMMANDS |= {name: f"jdistill.{name}.command" for name in ("export", "sweep")}


def import_all(learnt: Path) -> None:
    """Imports the commands, and what runs before have been seen to import (`learnt`, a JSON list). JAX's backend stays unmade, since
    a process that has one must not fork."""
    for name in COMMANDS.values():
        importlib.import_module(name)
    for name in FORM_LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(name)
    for name in json.loads(learnt.read_text()) if learnt.is_file() else []:
        with suppress(Exception):
            importlib.import_module(name)
    from jax._src import xla_bridge

    assert not xla_bridge._backends, "JAX's backend was made before the fork"


def run(launch: Launch, guarded: Path, logs: Path, name: str) -> End:
    return run_together([launch], guarded, logs, name)[0]


def run_together(launches: Sequence[Launch], guarded: Path, logs: Path, name: str) -> list[End]:
    """Runs commands at once, each to its end. guarded: the folder whose write calls are counted. name: of the log files."""
    logs.mkdir(parents=True, exist_ok=True)
    began, jobs = time.monotonic(), []
    for number, launch in enumerate(launches):
        port = free_port() if launch.processes > 1 else 0
        parts = [logs / f"{name}.{number}.{process}" for process in range(launch.processes)]
        pids = [_fork(launch, process, port, guarded, part) for process, part in enumerate(parts)]
        jobs.append(_Job(launch, pids, parts))
    while any(job.alive for job in jobs):
        now = time.monotonic() - began
        for job in jobs:
            job.look(now)
        time.sleep(0.005)
    return [job.end() for job in jobs]


class _Job:
    """The processes of one launch while they run."""

    def __init__(self, launch: Launch, pids: list[int], parts: list[Path]):
        self.launch, self.parts, self.alive = launch, parts, dict(enumerate(pids))
        self.codes: dict[int, int] = {}
        self.seconds, self.hung = 0.0, False

    def look(self, now: float) -> None:
        for process, pid in list(self.alive.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self.alive[process]
                self.codes[process] = os.waitstatus_to_exitcode(status)
                self.seconds = now
                if self.codes[process] < 0:  # as a launcher does: without one of them the others wait for it
                    self.kill()
        deadline = self.launch.start_after + (self.launch.kill_after or LONGEST)
        if self.alive and now > deadline:
            self.hung = self.hung or not self.launch.kill_after
            self.kill()

    def kill(self) -> None:
        for pid in self.alive.values():
            os.kill(pid, signal.SIGKILL)

    def end(self) -> End:
        logs = "".join(_named(part, ".log").read_text(errors="replace") for part in self.parts)
        first = self.parts[self.launch.faulty]
        # A run of several processes is killed where one was, and otherwise ends as its worst.
        code = min(self.codes.values()) if min(self.codes.values()) < 0 else max(self.codes.values())
        told, trace = _named(first, ".json"), _named(first, ".trace")
        found = json.loads(told.read_text()) if told.is_file() else {}
        lines = trace.read_text(errors="replace").splitlines() if trace.is_file() else []
        return End(
            None if self.hung else code, self.seconds, logs, **({"trace": lines, "processes": len(self.parts)} | found)
        )


def _named(part: Path, suffix: str) -> Path:
    """A file of one process alone. part: ends in .NUMBER.PROCESS, which is no suffix."""
    return part.with_name(part.name + suffix)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _fork(launch: Launch, process: int, port: int, guarded: Path, part: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:  # never back into the frames of the parent, whose cleaning up is not the child's
        code = _child(launch, process, port, guarded, part)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _child(launch: Launch, process: int, port: int, guarded: Path, part: Path) -> int:
    """The whole life of a command, its leaving of the interpreter included."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a campaign that is stopped leaves nothing running
    for suffix in (".json", ".trace"):
        _named(part, suffix).unlink(missing_ok=True)
    log = os.open(_named(part, ".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(ROOT)
    os.environ["XLA_FLAGS"] += f" --xla_force_host_platform_device_count={launch.devices}"
    joined = [f"--coordinator=127.0.0.1:{port}", "--num_processes", str(launch.processes), "--process_id", str(process)]
    sys.argv = [f"jdistill.{launch.module}", *launch.arguments, *(joined if launch.processes > 1 else [])]
    time.sleep(launch.start_after)
    fault = launch.fault if process == launch.faulty else Fault()
    faults.arm(fault, guarded, _named(part, ".trace"))
    told: dict[str, object] = {}
    if launch.call:
        code, told["value"] = 0, launch.call()
    else:
        code = _command(launch.module)
    if launch.learnt:
        _learn(launch.learnt)
    if not code:  # after an error a command leaves at once (jdistill.core.errors.leave)
        threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at its end
        atexit._run_exitfuncs()
    told["calls"], told["failed"] = faults.disarm()
    _named(part, ".json").write_text(json.dumps(told))
    return code


def _command(module: str) -> int:
    """A command's exit status, as its process would have it."""
    main = sys.modules[COMMANDS[module]]
    try:
        if module in ("main", "sweep"):
            from absl import app

            from jdistill.config.flags import parse

            app.run(main.train_command if module == "main" else main.sweep_command, flags_parser=parse)
        else:
            return main.main(sys.argv[1:])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return 130
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _learn(path: Path) -> None:
    """Adds to the file the names of the modules that this process has imported."""
    known = set(json.loads(path.read_text())) if path.is_file() else set()
    found = {name for name in sys.modules if name.split(".")[0] in LEARNT}
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(sorted(known | found)))
    beside.replace(path)
