"""jdistill.embed's parts: what lacks is made, shards make one whole, a kill costs a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import HANG, ROOT, environment, run
from embed_setting import let_logs_pass, read_folder, run_embed, write_place

from jdistill.core.files import SEAL
from jdistill.core.locks import only_one
from jdistill.teachers.embeddings import open_teacher


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_place(tmp_path)


@pytest.fixture(autouse=True)
def propagating(monkeypatch: pytest.MonkeyPatch) -> None:
    let_logs_pass(monkeypatch)


def test_the_same_command_again_makes_what_lacks_and_says_so(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run_embed(place) == 0
    whole = read_folder(place / "out")
    first, second, third = sorted((place / "out").glob("part-*"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-60])
    written = third.stat().st_mtime_ns
    with caplog.at_level("INFO", logger="jdistill"):
        assert run_embed(place, "--check") == 2
        assert run_embed(place) == 0
    assert "part-00001.parquet is damaged (" in caplog.text and "and made anew" in caplog.text
    assert "2 made now, 1 were there" in caplog.text and third.stat().st_mtime_ns == written
    assert read_folder(place / "out").equals(whole)


def test_check_says_what_lacks_and_makes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_embed(place, "--check") == 2 and "nothing to check" in capsys.readouterr().err
    assert not (place / "out").exists()
    (place / "out").mkdir()
    assert run_embed(place, "--check") == 2 and "nothing to check" in capsys.readouterr().err
    assert not list((place / "out").iterdir())
    assert run_embed(place, "--shard", "1/3") == 0
    assert run_embed(place, "--check") == 2
    assert "has 1 of 3 parts; it lacks 0 (missing), 2 (missing): run" in capsys.readouterr().err
    assert len(list((place / "out").glob("part-*"))) == 1


def test_shards_make_what_one_process_makes(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run_embed(place, out="whole") == 0
    with caplog.at_level("INFO", logger="jdistill"):
        for shard in ("1/2", "0/2"):
            assert run_embed(place, "--shard", shard) == 0
            with pytest.raises(Exception, match="is not finished"):
                open_teacher(f"vectors:{place / 'out'}", 0, "float32")
    assert "shard 1/2 has 1 parts: 1 made, 0 were there; 1 of all 3 are there now" in caplog.text
    assert "shard 0/2 has 2 parts: 2 made, 0 were there; all are there now" in caplog.text
    assert run_embed(place, "--check") == 0
    assert read_folder(place / "out").equals(read_folder(place / "whole"))
    (place / "out" / SEAL).write_text("{")  # is written again, since the parts tell of themselves
    assert run_embed(place) == 0 and json.loads((place / "out" / SEAL).read_text())["parts"] == 3


def test_two_processes_do_not_make_one_part(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_embed(place, "--shard", "0/3") == 0
    lock = place / "out" / ".jdistill-lock-part-00001.parquet"
    with only_one(lock, lock, "a test"):
        assert run_embed(place, "--shard", "2/3") == 0  # another part is free
        assert run_embed(place, "--shard", "1/3") == 2
    assert "part-00001.parquet is in use by the writing of another process" in capsys.readouterr().err


def test_a_kill_costs_a_part_and_a_full_disk_is_one_line(place: Path) -> None:
    """By the campaign's library, which sees every write: killed at the third rename, refused from a write on, then let go."""
    sys.path.insert(0, str(ROOT / "bench"))
    faults = pytest.importorskip("campaign.faults")
    library = faults.build(place / "lib")
    script = (
        "import errno, sys\n"
        "sys.path[:0] = ['bench']\n"
        "from pathlib import Path\n"
        "from campaign.faults import Fault, arm, disarm\n"
        "from jdistill import embed\n"
        "out, action = Path(sys.argv[1]), sys.argv[2]\n"
        "fault = Fault(3, 'kill before', 0, 'n') if action == 'kill' else Fault(4, 'fail from', errno.ENOSPC, 'w')\n"
        "arm(fault, out)\n"
        "status = embed.main(sys.argv[3:])\n"
        "disarm()\n"
        "raise SystemExit(status)\n"
    )
    flags = ["--model", str(place / "MODEL"), "--text", str(place / "text.txt"), "--out", str(place / "out")]
    env = environment() | {"LD_PRELOAD": str(library)}

    def start(action: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", script, str(place / "out"), action, *flags, "--part_size", "50"]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG)

    assert run_embed(place, out="whole") == 0
    killed = start("kill")  # the seal and the first part have their names
    assert killed.returncode == -9, killed.stderr[-2000:]
    assert [path.name for path in (place / "out").glob("part-*")] == ["part-00000.parquet"]
    refused = start("full")
    assert refused.returncode == 2, refused.stderr[-2000:]
    last = refused.stderr.splitlines()[-1]
    assert "No space left on device" in last and "make room" in last and "part-00001.parquet" in last, refused.stderr
    assert run_embed(place) == 0
    assert read_folder(place / "out").equals(read_folder(place / "whole"))
    assert sorted(os.listdir(place / "out")) == sorted(os.listdir(place / "whole"))


def test_a_slurm_array_makes_a_shard_a_task(place: Path) -> None:
    flags = ["--model", str(place / "MODEL"), "--text", str(place / "text.txt"), "--out", str(place / "out")]
    slurm = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_MAX": "2", "SLURM_SUBMIT_DIR": str(ROOT), "PYTHON": sys.executable}  # fmt: skip
    done = run(["bash", "launch/embed_slurm.sh", *flags, "--part_size", "50"], **slurm)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "shard 1/3 has 1 parts: 1 made" in done.stderr
    assert [path.name for path in (place / "out").glob("part-*")] == ["part-00001.parquet"]
    assert run_embed(place) == 0 and len(read_folder(place / "out")) == 130


def test_a_shard_of_a_text_that_grew_writes_nothing_into_the_folder_of_the_old(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The part that both have differs, and is another shard's; what this one would add is no part of that folder."""
    assert run_embed(place) == 0
    before = {path.name: path.read_bytes() for path in (place / "out").glob("part-*")}
    text, longer = (place / "text.txt").read_text(), "".join(f"one more text, number {i}\n" for i in range(60))
    (place / "text.txt").write_text(text + longer)
    assert run_embed(place, "--shard", "1/2") == 2
    assert (
        "part-00002.parquet was made of other texts: it has 30 texts, and now there are 50" in capsys.readouterr().err
    )
    assert {path.name: path.read_bytes() for path in (place / "out").glob("part-*")} == before
    (place / "text.txt").write_text(text)
    assert run_embed(place, "--shard", "1/2") == 0 and run_embed(place) == 0
