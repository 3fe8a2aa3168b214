"""The campaign (bench/campaign.py): its library sees every writer, its digest every change; and a small sample of each part."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import HANG

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "bench")]

from campaign import cases, faults, products  # noqa: E402
from campaign.faults import ACTIONS, Fault  # noqa: E402
from campaign.launches import End  # noqa: E402
from campaign.pairs import without_kept  # noqa: E402

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is for Linux with glibc")

WRITERS = """
import sys; sys.path[:0] = ["bench"]
from pathlib import Path
from campaign import faults
import faiss, numpy as np, orbax.checkpoint as ocp, onnx
from onnx import helper
from safetensors.numpy import save_file
folder = Path(sys.argv[1])
faults.arm(faults.Fault(), folder, folder.parent / "trace")
index = faiss.IndexFlatIP(4); index.add(np.ones((9, 4), np.float32)); faiss.write_index(index, str(folder / "vectors.faiss"))
save_file({"a": np.ones(9)}, folder / "a.safetensors")
onnx.save(helper.make_model(helper.make_graph([], "g", [], [])), str(folder / "g.onnx"))
ocp.PyTreeCheckpointer().save(folder / "checkpoint", {"a": np.random.default_rng(0).normal(size=(64, 64))})
np.ones(9).tofile(folder / "a.bin")
print(*faults.disarm())
"""
ONE_WRITER = """
import sys; sys.path[:0] = ["bench"]
import os
from pathlib import Path
from campaign import faults
folder, action, n, error = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
faults.arm(faults.Fault(n, action, error), folder)
(folder.parent / "elsewhere").write_text("not counted")
try:
    file = os.open(folder / "file", os.O_WRONLY | os.O_CREAT)
    for piece in (b"one,", b"two,", b"three,"):
        done = os.write(file, piece)
        assert done == len(piece), done
    os.rename(folder / "file", folder / "named")
except (OSError, AssertionError) as error:
    print(error)
print(*faults.disarm())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faults.build(tmp_path_factory.mktemp("library"))


def run(library: Path, script: str, *arguments: object) -> subprocess.CompletedProcess:
    env = os.environ | {"LD_PRELOAD": str(library), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG)


def test_the_library_sees_what_other_languages_write(library: Path, tmp_path: Path) -> None:
    (tmp_path / "slot").mkdir()
    done = run(library, WRITERS, tmp_path / "slot")
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split(" ", 2) for line in (tmp_path / "trace").read_text().splitlines()]
    assert len(rows) == int(done.stdout.split()[0])
    written = {path.rpartition("/")[2] for _, kind, path in rows if kind in "wn"}  # some write beside, then rename
    files = [path for path in (tmp_path / "slot").rglob("*") if path.is_file() and path.stat().st_size]
    assert {path.name for path in files} - {"a.safetensors"} <= written
    assert {"vectors.faiss", "g.onnx", "a.bin"} <= written
    assert any(name.startswith(".tmp") for name in written)  # safetensors', which Rust then renames past the C library
    assert any(path.parent.name == "d" and path.stat().st_size > 1000 for path in files)  # tensorstore's arrays


@pytest.mark.parametrize(
    ("action", "n", "code", "left"),
    [
        ("count", 0, 0, {"named": "one,two,three,"}),
        ("kill before", 3, -signal.SIGKILL, {"file": "one,"}),
        ("kill after", 3, -signal.SIGKILL, {"file": "one,two,"}),
        ("kill halfway", 3, -signal.SIGKILL, {"file": "one,tw"}),
        ("kill before", 5, -signal.SIGKILL, {"file": "one,two,three,"}),
        ("kill after", 5, -signal.SIGKILL, {"named": "one,two,three,"}),
    ],
)
def test_a_process_dies_at_its_nth_write(
    library: Path, tmp_path: Path, action: str, n: int, code: int, left: dict
) -> None:
    (tmp_path / "slot").mkdir()
    done = run(library, ONE_WRITER, tmp_path / "slot", action, n, 0)
    assert done.returncode == code, done.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "slot").iterdir()} == left
    assert (tmp_path / "elsewhere").exists() and (code or done.stdout.split() == ["5", "0"])


def test_a_disk_fills_up_and_a_call_fails_once(library: Path, tmp_path: Path) -> None:
    (tmp_path / "slot").mkdir()
    full = run(library, ONE_WRITER, tmp_path / "slot", "fail from", 3, 28)
    assert full.stdout.split("\n")[0] == "2" and (tmp_path / "slot" / "file").read_text() == "one,tw"
    once = run(library, ONE_WRITER, tmp_path / "slot", "fail once", 5, 13)
    assert "Permission denied" in once.stdout and once.stdout.split()[-2:] == ["5", "1"]
    assert (tmp_path / "slot" / "file").read_text() == "one,two,three,"


def test_a_digest_tells_every_product_from_a_changed_one(tmp_path: Path) -> None:
    run_folder = tmp_path / "run"
    (run_folder / "export").mkdir(parents=True)
    (run_folder / "export" / "model.safetensors").write_bytes(b"weights")
    (run_folder / "results.json").write_text(
        json.dumps({"seconds": 3.0, "sts": 71.5, "training": {"sentences_per_s": 9}})
    )
    (run_folder / "report.html").write_text("<html>3 s</html>\n")
    (run_folder / "metrics.jsonl").write_text('{"step": 2, "loss": 0.5}\n')
    before = products.digest(tmp_path)()
    assert products.differences(before, before) == ([], [])

    def change(name: str, content: str) -> tuple[int, int]:
        path, was = run_folder / name, (run_folder / name).read_bytes() if (run_folder / name).exists() else None
        path.write_text(content)
        of_products, of_logs = products.differences(products.digest(tmp_path)(), before)
        path.unlink() if was is None else path.write_bytes(was)
        return len(of_products), len(of_logs)

    assert change("export/model.safetensors", "weightz") == (1, 0)
    assert change("results.json", '{"seconds": 4.0, "sts": 71.5, "training": {"sentences_per_s": 8}}') == (0, 0)
    assert change("results.json", '{"seconds": 3.0, "sts": 71.6, "training": {"sentences_per_s": 9}}') == (1, 0)
    assert change("results.json", '{"seconds"') == (1, 0)
    assert change("report.html", "<html>4 s</html>\n") == (0, 0) and change("report.html", "<html>") == (1, 0)
    assert change("metrics.jsonl", '{"step": 2, "loss": 0.6}\n') == (0, 1)
    assert change("results.tmp", "{}") == (1, 0)


@pytest.mark.parametrize(
    ("code", "log", "why"),
    [
        (0, "done\n", []),
        (2, "12:00:00 text\nerror: --config.text=x is not there\n", []),
        (2, "no word\n", ["exit code 2 without one line of error"]),
        (
            1,
            'Traceback (most recent call last):\n  File "a"\nOSError: full\n',
            ["exit code 1", "traceback: OSError: full"],
        ),
        (None, "", ["hang"]),
        (-signal.SIGSEGV, "", ["exit code -11"]),
    ],
)
def test_bad_ends(code: int | None, log: str, why: list[str]) -> None:
    assert End(code, 1.0, log).faults() == why
    case = cases.Case("x", "x", "x")
    case.add("it", End(code, 1.0, log))
    assert case.outcome == ("wrong" if why else "equal") and all(of in " ".join(case.why) for of in why)


def test_actions_are_numbered_as_in_c() -> None:
    (of_c,) = [line for line in faults.SOURCE.read_text().splitlines() if line.startswith("enum { COUNT")]
    names = of_c[of_c.index("{") + 1 : of_c.index("}")].replace(",", " ").split()
    assert [name.lower().replace("_", " ") for name in names] == list(ACTIONS)
    assert str(Fault(3, "fail once", 28)) == "fail once with ENOSPC at call 3 of ownsdutl"


def test_ended_cases_are_kept_and_counted(tmp_path: Path) -> None:
    place = SimpleNamespace(scratch=tmp_path, slot=tmp_path / "slot", logs=tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    ledger = cases.Ledger(tmp_path / "kills.jsonl", place)  # type: ignore[arg-type]
    ledger.add(cases.Case("kills/a/0/0", "a", "export", kills=2), "1234567")
    ledger.add(cases.Case("kills/b/0/0", "b", "index", outcome="wrong", why=["it: exit code 1"], kills=1), "1234567")
    with (tmp_path / "kills.jsonl").open("a") as out:
        out.write('{"id": "kills/a/0/1", "outc')  # where the campaign was killed
    again = cases.Ledger(tmp_path / "kills.jsonl", place)  # type: ignore[arg-type]
    assert again.cases.keys() == {"kills/a/0/0", "kills/b/0/0"}
    again.add(cases.Case("kills/a/0/1", "a", "export", outcome="refused"), "89abcde")
    of_all = cases.Ledger(tmp_path / "kills.jsonl", place)  # type: ignore[arg-type]
    found = of_all.summary(again.cases)
    assert found["commit"] == "1234567, 89abcde" and of_all.summary(["kills/a/0/1"])["commit"] == "89abcde"
    assert (found["cases"], found["kills"], found["equal"], found["refused"], found["wrong"]) == (3, 3, 1, 1, 1)
    assert found["by_phase"]["export"] == {"cases": 2} | dict.fromkeys(cases.OUTCOMES, 0) | {"equal": 1, "refused": 1}
    assert found["wrong_by_kind"] == {"exit code #": 1} and (tmp_path / "kept" / "kills+b+0+0" / "logs").is_dir()


def test_what_a_refused_process_says_that_it_keeps_is_no_wrong_product() -> None:
    """Which of two that mine at once comes to its end first is chance: the other is refused before it mines or after."""
    found = {"mined.jsonl": "a", "mined.jsonl.01.part": "b"}
    assert without_kept(found, ["error: --out=mined.jsonl exists. What was mined is kept beside it (…)"]) == {
        "mined.jsonl": "a"
    }
    assert without_kept(found, ["error: --out=mined.jsonl exists"]) == found


def test_a_sample_of_each_part(tmp_path: Path) -> None:
    ids = [
        "kills/supervised/0/59",  # two kills, both at writes
        "kills/mine/0/0",  # at a write, so that it dies on any machine
        "files/supervised/0/half/halved/run/config.json",
        "pairs/out mine/0/0",
        "faults/mine/0/ENOSPC/fail from/3",
        "faults/supervised/0/ENOSPC/fail from/290",  # in the middle of the second checkpoint
    ]
    command = [sys.executable, "bench/campaign.py", "--scratch", str(tmp_path), "--case", *ids]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    outcomes = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines() if not line.startswith(" "))
    assert outcomes.keys() == set(ids), done.stderr[-3000:]
    assert "wrong" not in outcomes.values() and done.returncode == 0, done.stdout
    assert "exit -9" in done.stdout and "calls failed, the first: " in done.stdout
    assert re.search(r"exit 2 .*calls failed, the first: \d+ \w /run/finetune/checkpoints/", done.stdout), done.stdout
