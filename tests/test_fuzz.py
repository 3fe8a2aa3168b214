"""The fuzzer of bench/fuzz.py: whole samples are read, and of some 300 damaged ones each is read and sane, or refused in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import fuzz  # noqa: E402
from fuzz_kinds import KINDS, Kind  # noqa: E402

from jdistill.core.errors import UserError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:os.fork")  # of readers that touch no JAX


@pytest.mark.parametrize("name", KINDS)
def test_whole_samples_are_read(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    kind.make(tmp_path)
    path = next(path for path in sorted(tmp_path.rglob("*")) if path.is_file() and path.name.endswith(kind.only))
    kind.read(tmp_path, path)


def test_damaged_samples_are_read_or_refused(tmp_path: Path) -> None:
    # In a process of its own: it forks, and this one may have run JAX.
    command = [sys.executable, str(BENCH / "fuzz.py"), "--inputs=300", "--seed=1"]
    command += [f"--out={tmp_path / 'fuzz.json'}", f"--keep={tmp_path / 'kept'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads((tmp_path / "fuzz.json").read_text())
    assert done.returncode == 0 and not report["faults"], report["faults"]
    assert report["inputs"] == 300 and report["outcomes"]["read"] and report["outcomes"]["refused"]


def test_a_campaign_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = fuzz.campaign(["glove"], 6, 1, tmp_path)
    done = (tmp_path / "done.jsonl").read_bytes()
    lines = done.splitlines(keepends=True)
    (tmp_path / "done.jsonl").write_bytes(b"".join(lines[:4]))
    assert fuzz.campaign(["glove"], 6, 1, tmp_path) == rows
    assert (tmp_path / "done.jsonl").read_bytes() == done


def test_what_is_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(folder: Path) -> None:
        (folder / "a").write_text("text")

    def many(_: Path, path: Path) -> None:
        raise UserError("two\nlines")

    def insane(_: Path, path: Path) -> None:
        raise AssertionError("not sane")

    def large(_: Path, path: Path) -> None:
        bytearray(3 << 30)

    def slow(_: Path, path: Path) -> None:
        while True:
            pass

    def dies(_: Path, path: Path) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    cases = {
        "many": (many, "several lines"),
        "insane": (insane, "not sane"),
        "large": (large, "MemoryError"),
        "slow": (slow, "more than 1 s"),
        "dies": (dies, "the process died"),
    }
    for name, (read, _) in cases.items():
        monkeypatch.setattr(fuzz, "SECONDS", 1 if name == "slow" else 60)

        def of_damaged(folder: Path, path: Path, read: Callable = read) -> None:
            if path.read_bytes() != b"text":
                read(folder, path)

        monkeypatch.setitem(KINDS, name, Kind(make, of_damaged))
        (row,) = fuzz.campaign([name], 1, 0, tmp_path / name)
        assert row["outcome"] == "wrong", row
        said = (tmp_path / name / f"{name}-0" / "ERROR").read_text()
        assert cases[name][1] in said, said
