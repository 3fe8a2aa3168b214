"""Runs with a budget: what they report of it, that they resume with their choice, and what a dry run says."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from budget_setting import WIDTH, config, run_command, shape, write_place
from commands import run_inside
from ml_collections import ConfigDict

from jdistill.encoder import loading
from jdistill.export.onnx_forms import INT8_GRAPH
from jdistill.export.targets import TARGETS
from jdistill.run import budget, budget_results
from jdistill.run.budget import settle_student
from jdistill.run.workdir import settle_config
from jdistill.students.menu import SHAPE_KEYS, Shape

INT8 = f"onnx/{INT8_GRAPH}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_place(tmp_path_factory.mktemp("budget"))


def not_again(*_: object) -> Any:
    raise AssertionError("chosen again")


OF_RUN = {"budget.precision": "int8", "budget.mb": 1.0, "budget.ms": 1e5}


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    """A finished run; its log lies beside it."""
    done = run_inside(run_command(place, "run", **OF_RUN))
    assert done.returncode == 0, done.stderr[-3000:]
    (place / "log").write_text(done.stderr)
    return place / "run"


def test_a_run_reports_its_budget_against_its_export(place: Path, run: Path) -> None:
    log = (place / "log").read_text()
    student = json.loads((run / "config.json").read_text())["student"]
    assert {key: student[key] for key in SHAPE_KEYS} == shape(4, 21, 0)
    assert "budget: 4 layers, compact width 21, whole layers; " in log
    of_budget = json.loads((run / "results.json").read_text())["budget"]
    got = of_budget["got"]
    assert of_budget["asked"] == {"mb": 1.0, "ms": 1e5, "dim": 0} and got["dim"] == WIDTH
    assert got["mb"] == (run / "export" / INT8).stat().st_size / 1e6 <= 1.0 and 0 < got["ms"] < 1e5
    assert of_budget["kept"] is True and of_budget["promised"] is None
    assert f"budget kept in onnx and int8: {got['mb']:.1f} MB of 1, {got['ms']:.2f} ms a text of 100000" in log
    page = (run / "report.html").read_text()
    assert "The budget was kept, in onnx and int8: 4 layers" in page and f"{got['mb']:.1f} MB" in page
    assert loading.load(str(run / "export")).config.num_layers == 4


def test_a_promise_is_made_to_the_recipe_that_it_was_measured_by(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_results, "MENU", (Shape(4, 1 / 3, retention=90.0),))
    start = loading.load(str(place / "teacher"))
    for index_by, promised in (("student", None), ("teacher", 90.0)):  # configs/budget.py, and its variant search
        cfg = config(place, index_by=index_by).unlock()
        cfg.student.update(shape(4, 11, 0))
        of_budget = budget_results.budget_results(cfg, start, start.config, None, place / "no_export")
        assert of_budget["promised"] == promised


def test_a_run_goes_on_with_its_choice_and_without_the_form_that_strays(
    place: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = place / "begun"
    shutil.copytree(run, begun)
    shutil.rmtree(begun / "export")
    (begun / "results.json").unlink()
    monkeypatch.setattr(budget, "choose_student", not_again)
    monkeypatch.setitem(TARGETS, "onnx-int8", replace(TARGETS["onnx-int8"], least_cosine=1.1))
    done = run_inside(run_command(place, "begun", **OF_RUN))
    assert done.returncode == 0, done.stderr[-3000:]
    assert (begun / "config.json").read_text() == (run / "config.json").read_text()
    assert "the budget's form is left out: the vectors of onnx-int8" in done.stderr
    assert not (begun / "export" / INT8).exists()
    of_budget = json.loads((begun / "results.json").read_text())["budget"]
    assert of_budget["got"] == {"mb": None, "ms": None, "dim": WIDTH} and of_budget["kept"] is False
    assert "budget NOT kept in onnx and int8: not to be had of 1, not to be had of 100000, 32 numbers" in done.stderr


def test_a_run_that_has_begun_keeps_its_budget(place: Path, run: Path) -> None:
    other = run_inside(run_command(place, "run", **OF_RUN | {"budget.mb": 0.5}))
    assert other.returncode == 2 and "budget.mb: 1.0 there, 0.5 now" in other.stderr
    by_hand = run_inside(run_command(place, "run", **OF_RUN | {"student.layers": 2}))
    assert by_hand.returncode == 2 and "--config.student.layers=2: the budget chooses it" in by_hand.stderr


def test_a_run_that_was_killed_after_its_choice_keeps_it(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = config(place)
    settle_student(cfg, tmp_path)
    settle_config(cfg, tmp_path)
    settle_student(
        changed := config(place, **{"budget.mb": 0.8}), tmp_path
    )  # nothing has begun: another budget chooses anew
    assert changed.student.layers == 2
    monkeypatch.setattr(budget, "choose_student", not_again)
    settle_student(resumed := config(place), tmp_path)
    settle_config(resumed, tmp_path)
    assert resumed.student == cfg.student and cfg.student.layers == 4
    (tmp_path / "config.json").write_text(
        '{"method": "simtde", "teacher": "", "text": "", "budget": {}, "student": {}}'
    )
    with pytest.raises(AssertionError, match="chosen again"):
        settle_student(config(place), tmp_path)


def test_a_dry_run_says_what_it_would_choose_and_writes_nothing(place: Path) -> None:
    done = run_inside([*run_command(place, "planned"), "--dry_run"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("budget: 4 layers, compact width 11, whole layers; ") and "parameters" in done.stdout
    assert not (place / "planned").exists()


def test_the_first_process_asks_no_other_while_it_chooses(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for its choice: a compute type that was still "auto" would be settled by all together."""
    given: list[str] = []

    def choose(cfg: ConfigDict) -> tuple[dict[str, int], str]:
        given.append(cfg.teacher_dtype)
        return dict.fromkeys(SHAPE_KEYS, 1), "for a test"

    monkeypatch.setattr(budget, "choose_student", choose)
    cfg = config(place, teacher_dtype="auto")
    assert settle_student(cfg, None) and given == ["float32"] and cfg.teacher_dtype == "auto"
