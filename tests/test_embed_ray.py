"""launch/embed_ray.py: what a cluster makes, one of whose workers is killed in the middle, is what one process makes."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest
from commands import HANG, ROOT, environment
from conftest import sentences

from jdistill import embed
from jdistill.core.errors import UserError
from jdistill.data.text.text_stream import StreamedText, TextStream

SCRIPT = ROOT / "launch" / "embed_ray.py"
WITHOUT_RAY = importlib.util.find_spec("ray") is None


def launcher() -> ModuleType:
    spec = importlib.util.spec_from_file_location("embed_ray", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which its dataclasses look themselves up in
    spec.loader.exec_module(module)
    return module


def test_without_ray_one_line_names_the_extra(monkeypatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    out = ["--model", "MODEL", "--text", "text.txt", "--out", str(tmp_path / "out")]
    assert launcher().main(out) == 2
    assert capsys.readouterr().err == "error: launch/embed_ray.py needs the ray extra: pip install -e '.[ray]'\n"


def test_where_no_worker_has_room_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Ray would wait for a node without a word."""
    flags = argparse.Namespace(gpus_per_worker=1.0, cpus_per_worker=2.0, address="")
    check = launcher().check_room
    check(flags, {"CPU": 8.0, "GPU": 1.0})
    with pytest.raises(UserError, match="--gpus_per_worker=1: there are 0 GPUs in all, so that no worker would start"):
        check(flags, {"CPU": 8.0})
    flags.address = "auto"  # of a cluster that may grow
    with caplog.at_level("WARNING", "jdistill"):
        check(flags, {"CPU": 1.0, "GPU": 1.0})
    assert (
        "--cpus_per_worker=2: there are 1 CPUs in all, so that no worker would start before the cluster grows"
        in caplog.text
    )


def children(parent: int) -> dict[int, str]:
    """pid -> command line of every process below one."""
    parents, lines = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
    below, added = {parent}, True
    while added:
        added = {pid for pid, above in parents.items() if above in below} - below
        below |= added
    return {pid: lines[pid] for pid in below - {parent} if pid in lines}


@pytest.mark.skipif(WITHOUT_RAY, reason="ray is not installed, which the ray extra brings")
def test_a_killed_worker_changes_nothing(tmp_path: Path, tiny_teacher: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join([*sentences(200), "", *sentences(400)[200:], " "]))
    flags = ["--model", str(tiny_teacher), "--text", str(tmp_path / "text.txt"), "--part_size", "2"]
    command = [sys.executable, str(SCRIPT), *flags, "--out", str(tmp_path / "ray"), "--workers", "2"]
    with (tmp_path / "log").open("w") as told:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=told, stderr=told)
    try:
        deadline = time.monotonic() + HANG
        while len(list((tmp_path / "ray").glob("part-*"))) < 20:
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.02)
        workers = [pid for pid, line in children(process.pid).items() if "PartEmbedder" in line]
        assert len(workers) == 2, children(process.pid)
        os.kill(workers[0], signal.SIGKILL)
        there = len(list((tmp_path / "ray").glob("part-*")))
        assert there < 200  # it was in the middle
        assert process.wait(HANG) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        process.kill()
    told = (tmp_path / "log").read_text()
    assert "all 200 parts are there, 400 texts" in told
    assert "text.txt: skipped 1 empty (first: " in told and "text.txt line 402)" in told
    assert embed.main([*flags, "--out", str(tmp_path / "plain")]) == 0
    names = sorted(path.name for path in (tmp_path / "plain").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "ray").iterdir())
    for name in names[1:]:
        assert pq.read_table(tmp_path / "ray" / name).equals(pq.read_table(tmp_path / "plain" / name)), name
    assert embed.main([*flags, "--out", str(tmp_path / "ray"), "--check"]) == 0  # the one goes on with the other's


def test_what_lies_here_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.txt").write_text("a text\n")
    embed_ray = launcher()
    assert embed_ray.everywhere("small.txt") == str(tmp_path / "small.txt")
    for source in ("owner/name", "s3://bucket/a.txt", "pkg:package/model", ""):
        assert embed_ray.everywhere(source) == source


def test_a_readers_refusal_is_a_row_of_its_own() -> None:
    class Text(TextStream):
        def __iter__(self) -> Iterator[StreamedText]:
            yield StreamedText("one", "")
            yield StreamedText("two", "")
            raise UserError("row 3: the id is empty")

    embed_ray = launcher()
    rows = [row for table in embed_ray.PartReader(Text("made up"), 1)(None) for row in table.to_pylist()]
    assert [row["number"] for row in rows][-1] == -1 and rows[-1]["refusal"] == "row 3: the id is empty"
    assert [row["texts"] for row in rows[:-1]] == [["one"], ["two"]][: len(rows) - 1]
    lost = embed_ray.refusal_of(OSError(5, "Input/output error", "small.txt"))
    assert lost == "small.txt: Input/output error"


@pytest.mark.skipif(WITHOUT_RAY, reason="ray is not installed, which the ray extra brings")
def test_a_workers_refusal_is_one_line(tmp_path: Path, tiny_teacher: Path) -> None:
    """Of a file where a part should be, which a worker meets."""
    (tmp_path / "text.txt").write_text("\n".join(sentences(20)))
    flags = ["--model", str(tiny_teacher), "--text", str(tmp_path / "text.txt"), "--part_size", "5"]
    assert embed.main([*flags, "--out", str(tmp_path / "out"), "--shard", "0/4"]) == 0
    (tmp_path / "mine.parquet").write_bytes((tmp_path / "out" / "part-00000.parquet").read_bytes())
    (tmp_path / "mine.parquet").rename(tmp_path / "out" / "part-00001.parquet")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *flags, "--out", str(tmp_path / "out"), "--workers", "1"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr[-3000:]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and "part-00001.parquet was made of other texts: row 0 was" in last, last
