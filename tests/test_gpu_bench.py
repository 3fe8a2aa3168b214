"""The bench for a lent GPU (bench/gpu.sh), rehearsed on the CPU: each part measures its rows, and one that fails or hangs costs no other's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import HANG, ROOT, environment

sys.path[:0] = [str(ROOT / "bench")]

from gpu.parts import PARTS  # noqa: E402

# Figures that a row of each part must have, above 0, unless it says why not.
FIGURES = {
    "rates": {"ms"},
    "simtde": {"sentences_per_s", "tflop_per_s", "share_of_bfloat16_rate", "program_gib", "batch_on_host_ms"},
    "training": {"sentences_per_s", "later_sentences_per_s"},
    "trainer": {"sentences_per_s"},
    "ibkd": {"sentences_per_s", "tflop_per_s", "share_of_bfloat16_rate", "program_gib", "batch_on_host_ms"},
    "encoding": {"texts_per_s"},
    "encoder": {"texts_per_s"},
    "lstm": {"states_ms", "gradient_ms"},
    "attention": {"forward_ms", "gradient_ms"},
    "judging": {"pairs_per_s"},
    "steps": {"sentences_per_s", "share_of_bfloat16_rate"},
}
# Parts that are not sound: of a row that fails, of a module that cannot be imported, of a process that dies, and of one that hangs
# with a process of its own.
UNSOUND = """
import os, subprocess, sys, time
from gpu.parts import Cell
def fails(): raise ValueError("no such figure\\nat all")
def dies(): os.kill(os.getpid(), 9)
def hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("CHILD", "w").write(str(child.pid))
    time.sleep(600)
def one_fails(setting): return [Cell({"row": 1}, fails), Cell({"row": 2}, lambda: {"figure": 2})]
def one_dies(setting): return [Cell({"row": 1}, lambda: {"figure": 1}), Cell({"row": 2}, dies)]
def one_hangs(setting): return [Cell({"row": 1}, lambda: {"figure": 1}), Cell({"row": 2}, hangs)]
"""
SOUND = """
from gpu.parts import Cell
def part(setting): return [Cell({"row": 1}, lambda: {"figure": 1})]
"""


def bench(out: Path, *arguments: object, **more: str) -> tuple[int, dict[str, Any]]:
    """Its exit status and its results."""
    command = ["bash", "bench/gpu.sh", "--cpu", "--out", str(out), *map(str, arguments)]
    env = environment() | {"PYTHON": sys.executable} | more
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG)
    assert out.is_file(), done.stderr[-3000:]
    return done.returncode, json.loads(out.read_text())


def test_every_part_measures_its_rows(tmp_path: Path) -> None:
    for name in ("sentence_transformers", "accelerate"):
        pytest.importorskip(name, reason="needs the torch and bench extras")
    status, found = bench(tmp_path / "found.json", "--fork", "--budget", HANG, "--limit", HANG)
    assert [part["part"] for part in found["parts"]] == [part.name for part in PARTS] == list(FIGURES)
    assert all(part["end"] == "whole" for part in found["parts"]) and status == 0, found["parts"]
    assert found["rehearsal"] and found["on"]["platform"] == "cpu" and found["on"]["jax"]
    for name, figures in FIGURES.items():
        rows = [row for row in found[name] if "skipped" not in row and row.get("what") not in ("device", "copy")]
        assert rows
        for row in rows:
            assert all(row.get(figure, 0) > 0 for figure in figures), row
    skipped = [row for name in FIGURES for row in found[name] if "skipped" in row]
    assert skipped and all("cuDNN" in row["skipped"] for row in skipped)
    assert {row["way"] for row in found["lstm"] if "gradient_ms" in row} == {"scan"}
    assert found["simtde"][0]["chunk_size"] == found["ibkd"][0]["chunk_size"] == 16 > found["ibkd"][0]["block_size"] > 0
    assert found["simtde"][0]["packed"] and not found["steps"][0]["packed"]
    assert found["encoder"][0]["largest_difference"] < 1e-5 and found["judging"][1]["largest_difference"] < 1e-3
    assert found["judging"][1]["ratio"] > 0
    assert [row["what"].split(",")[0] for row in found["ratio"] if row["ratio"] > 0] == ["training", "encoding"]
    ours = found["training"][0]
    assert ours["steps_sentences_per_s"] > ours["sentences_per_s"]  # whose clock has tokenising and compiling in it


def test_parts_of_a_later_call_join_those_of_the_first(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    ends = {"simtde": 2, "ibkd": 1}, {"ibkd": 0, "rates": 1}  # of each call how many rows a part had
    for out, of_call in zip((first, second), ends, strict=True):
        parts = [{"part": name, "rows": rows, "seconds": 1.5} for name, rows in of_call.items()]
        rows = {name: [{"tflop_per_s": 4.0, "dtype": "bfloat16"}] * count for name, count in of_call.items() if count}
        out.write_text(json.dumps({"on": {"device": "one"}, "rehearsal": False, "seconds": 3.0, "parts": parts} | rows))
    joined = [sys.executable, "bench/gpu.py", "--add", str(second), "--out", str(first)]
    subprocess.run(joined, cwd=ROOT, env=environment(), check=True, timeout=HANG)
    found = json.loads(first.read_text())
    # A part that the second call did not come to keeps the first's rows.
    assert {part["part"]: part["rows"] for part in found["parts"]} == {"simtde": 2, "ibkd": 1, "rates": 1}
    assert len(found["simtde"]) == 2 and found["simtde"][0]["share_of_bfloat16_rate"] == 1 and found["seconds"] == 4.5
    first.write_text(json.dumps(found | {"on": {"device": "another"}}))
    done = subprocess.run(joined, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 1 and "holds results of {'device': 'another'}" in done.stderr


def test_a_part_that_fails_or_hangs_costs_no_other(tmp_path: Path) -> None:
    (tmp_path / "unsound.py").write_text(UNSOUND.replace("CHILD", str(tmp_path / "child")))
    (tmp_path / "sound.py").write_text(SOUND)
    parts = ["unsound:one_fails", "unsound:one_dies", "unsound:one_hangs", "missing:part", "sound:part"]
    out = tmp_path / "found.json"
    status, found = bench(out, "--limit", 30, "--parts", *parts, PYTHONPATH=str(tmp_path))
    assert status == 1
    ends = [part["end"] for part in found["parts"]]
    assert ends == ["1 of 2 rows failed", "ended by SIGKILL", "stopped after 30 s", "1 of 1 rows failed", "whole"]
    assert found[parts[0]] == [{"row": 1, "failed": "ValueError: no such figure"}, {"row": 2, "figure": 2}]
    assert all(found[part] == [{"row": 1, "figure": 1}] for part in (parts[1], parts[2], parts[4]))
    assert "missing" in found[parts[3]][0]["failed"]
    stat = Path(
        "/proc", (tmp_path / "child").read_text(), "stat"
    )  # what the part had started is gone too, or waits to be reaped
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_what_the_budget_leaves_no_time_for_is_said(tmp_path: Path) -> None:
    (tmp_path / "sound.py").write_text(SOUND)
    status, found = bench(tmp_path / "found.json", "--budget", 1, "--parts", "sound:part", PYTHONPATH=str(tmp_path))
    assert status == 1 and found["parts"][0]["end"].startswith("not begun: ")


def test_without_a_gpu_it_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "bench/gpu.py"], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 1 and "there is no GPU here" in done.stderr and "--cpu" in done.stderr
