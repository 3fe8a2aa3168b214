"""How a run is started and started again: the quickstart, what a cluster is given, and the command that a stopped run names."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import ROOT, free_port

from jdistill.main import this_python


@pytest.mark.parametrize("ends", [True, False])
def test_a_quickstart_whose_training_was_stopped_searches_nothing(tmp_path: Path, ends: bool) -> None:
    (tmp_path / "launch").mkdir()
    shutil.copy(ROOT / "launch" / "quickstart.sh", tmp_path / "launch")
    (tmp_path / "launch" / "environment.sh").write_text('set -euo pipefail\nexport PATH="$PWD:$PATH"\n')
    trains = 'case "$2" in jdistill.main) mkdir -p run; touch run/results.json;; esac' if ends else ":"
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "$2" >> asked\n{trains}\n')
    (tmp_path / "python").chmod(0o755)
    script = ["bash", "launch/quickstart.sh"]
    done = subprocess.run(script, cwd=tmp_path, env=os.environ | {"WORKDIR": "run"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().split()
    assert asked == (["jdistill.main", "jdistill.search"] if ends else ["jdistill.main"])
    assert ("report: " in done.stdout) == ends and ("run has no results yet" in done.stderr) != ends


def test_one_host_waits_for_processes_that_a_signal_has_reached(tmp_path: Path) -> None:
    """The first process saves and exports after it; the script ends once it has."""
    script = 'trap "sleep 1; touch $1.saved; exit 0" TERM\ntouch $1.began\nfor i in $(seq 600); do sleep 0.1; done\n'
    (tmp_path / "python").write_text(
        f'#!/bin/bash\nfor a in "$@"; do case "$a" in --process_id=*) id=${{a#*=}};; esac; done\n'
        f"set -- {tmp_path}/$id\n{script}"
    )
    (tmp_path / "python").chmod(0o755)
    env = os.environ | {"PYTHON": str(tmp_path / "python"), "PROCESSES": "2", "PORT": "1"}
    running = subprocess.Popen(["bash", "launch/one_host.sh"], cwd=ROOT, env=env)
    until = time.monotonic() + 60
    while len(list(tmp_path.glob("*.began"))) < 2 and running.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    running.terminate()
    assert running.wait(60) == 0
    assert {path.name for path in tmp_path.glob("*.saved")} == {"0.saved", "1.saved"}


@pytest.mark.parametrize(
    ("visible", "processes", "given"),
    [
        ("0,1,5,7", "2", ["0,1", "5,7"]),
        ("3,1", "2", ["3", "1"]),
        ("0,1,2", "2", None),
        (None, "2", ["unset", "unset"]),
        ("", "2", ["", ""]),  # CPUs are wanted
        ("-1", "2", ["-1", "-1"]),
    ],
)
def test_one_host_shares_out_the_gpus(visible: str | None, processes: str, given: list | None, tmp_path: Path) -> None:
    """A process that saw all of them would hold memory on each, and NCCL takes no GPU twice."""
    (tmp_path / "python").write_text(
        f'#!/bin/bash\nfor a in "$@"; do case "$a" in --process_id=*) id=${{a#*=}};; esac; done\n'
        f'echo "${{CUDA_VISIBLE_DEVICES-unset}}" > {tmp_path}/$id.seen\n'
    )
    (tmp_path / "nvidia-smi").write_text(
        "#!/bin/sh\necho No devices were found\nexit 9\n"
    )  # as where there is a driver
    for name in ("python", "nvidia-smi"):
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PYTHON": str(tmp_path / "python"), "PROCESSES": processes, "PORT": "1"}
    env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    env |= {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run(["bash", "launch/one_host.sh"], cwd=ROOT, env=env, capture_output=True, text=True)
    seen = [path.read_text().strip() for path in sorted(tmp_path.glob("*.seen"))]
    if given is None:
        assert done.returncode == 2 and not seen and "3 GPUs cannot be shared out evenly" in done.stderr
    else:
        assert (done.returncode, seen) == (0, given), done.stderr


def test_kubernetes_starts_a_run_again_that_a_signal_stopped() -> None:
    """A status of 0 would make its Job complete; a shell in front of Python would not hand SIGTERM on."""
    arguments = (ROOT / "launch" / "jobset.yaml").read_text().split("args:")[1].split("ports:")[0]
    assert "exec python -m jdistill.main" in arguments and "--interrupted_status=143" in arguments


def test_the_command_that_resumes_names_the_python_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name only where the shell finds it by that; another of the same name has another environment."""
    for folder in ("env", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert this_python() == "env/python"
    monkeypatch.chdir(tmp_path / "other")
    assert this_python() == str(tmp_path / "env" / "python")
    monkeypatch.setenv("PATH", str(tmp_path / "env"))
    assert this_python() == "python"


def test_the_quickstart_hands_its_arguments_on_and_installs_no_extra_by_them(tmp_path: Path) -> None:
    """By the scripts as they are, in a checkout with an environment that only says what it was asked."""
    (tmp_path / "launch").mkdir()
    for name in ("environment.sh", "quickstart.sh"):
        shutil.copy(ROOT / "launch" / name, tmp_path / "launch")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/asked\n')
    python.chmod(0o755)
    version = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()[:16]
    (tmp_path / ".venv" / f".installed-core-{version}").touch()
    script = ["bash", str(tmp_path / "launch" / "quickstart.sh"), "--config.max_steps=20"]
    for more, place in (([], "quickstart"), (["--workdir", "runs/two"], "two"), (["--workdir=runs/three"], "three")):
        done = subprocess.run([*script, *more], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"runs/{place} has no results yet" in done.stderr
        assert (tmp_path / "asked").read_text().splitlines()[-1] == (
            f"-m jdistill.main --config configs/quickstart.py --workdir runs/{place} --config.max_steps=20"
        )


def test_two_workers_of_the_suite_take_no_port_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """However Python's draws are seeded: an import of mteb's seeds them alike in all."""
    before, ports = random.getstate(), []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        random.seed(42)
        ports.append({free_port() for _ in range(20)})
        random.seed(42)
        ports[-1] |= {free_port() for _ in range(20)}
    random.setstate(before)
    assert ports[0].isdisjoint(ports[1])
    assert min(map(len, ports)) > 20  # the second twenty are not the first
