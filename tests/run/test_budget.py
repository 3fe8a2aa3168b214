"""The student that a budget chooses by size and by time, and the budgets that are refused."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from budget_setting import LAYERS, WIDTH, config, keys_of, shape, write_place
from conftest import make_decoder, make_encoder, save_encoder

from configs import budget as config_file
from configs import ibkd
from jdistill.config.keys import check_config
from jdistill.core.errors import UserError
from jdistill.encoder import loading
from jdistill.models.registry import count_parameters
from jdistill.run import student_candidates
from jdistill.run.budget import choose_student, chosen_before, settle_student
from jdistill.run.student_candidates import menu_candidates, single_text_ms, timed_ms, timing_texts
from jdistill.students.menu import SHAPE_KEYS, Measured, Shape
from jdistill.sweep.space import check_space
from jdistill.teachers.embeddings import open_teacher

# Shapes, of which the first has a hundred times the layers of the second: many times its time, tokenising and calls counted.
SLOW, FAST = Shape(100, 1 / 3), Shape(1, 1 / 3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_place(tmp_path_factory.mktemp("budget"))


@pytest.fixture(scope="module")
def deep(place: Path) -> Path:
    """A teacher that a slow student can be cut from."""
    save_encoder(make_encoder(num_layers=SLOW.layers), place / "deep")
    return place / "deep"


def test_the_menu_is_sorted_and_holds_what_the_start_can_become(place: Path) -> None:
    cfg, start = config(place), loading.load(str(place / "teacher"))
    menu = menu_candidates(cfg, start, "onnx")
    sizes = [candidate.num_params for candidate in menu]
    assert sizes == sorted(sizes, reverse=True) and len({candidate.config for candidate in menu}) == len(menu) > 4
    for candidate in menu:
        assert candidate.keys["layers"] <= LAYERS and candidate.num_params == count_parameters(candidate.config)
        assert candidate.mb * 1e6 == pytest.approx(4 * candidate.num_params, rel=0.02)


@pytest.mark.parametrize("mb", [0.8, 1.0, 2.0, 2.6, 1000.0])
def test_the_largest_that_fits_is_chosen(place: Path, mb: float) -> None:
    cfg = config(place, **{"budget.mb": mb})
    keys, said = choose_student(cfg)
    menu = menu_candidates(cfg, loading.load(str(place / "teacher")), "onnx")
    best = max((it for it in menu if it.mb <= mb), key=lambda it: it.num_params)
    assert keys == best.keys and f"{best.num_params:,} parameters" in said
    assert "nothing is promised" in said


def test_int8_buys_a_larger_student_for_the_same_megabytes(place: Path) -> None:
    small, _ = choose_student(config(place))
    large, _ = choose_student(config(place, **{"budget.precision": "int8"}))
    assert small == shape(4, 11, 0) and large == shape(4, 21, 0)


def test_a_cut_vocabulary_counts(place: Path) -> None:
    assert choose_student(config(place, **{"budget.mb": 0.8, "student.vocabulary": "5000"}))[0] == shape(4, 21, 0)
    assert choose_student(config(place, **{"budget.mb": 0.8, "student.vocabulary": "text"}))[0]["layers"] == 2


def test_where_all_qualities_are_measured_the_best_is_taken_and_promised(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    menu = (Shape(4, 1 / 3, retention=90.0), Shape(2, 1 / 3, retention=93.25))
    monkeypatch.setattr(student_candidates, "MENU", menu)
    keys, said = choose_student(config(place))
    assert (
        keys == shape(2, 11, 0)
        and "the menu promises 93.2 % of its teacher's nDCG@10 in float32, by one collection, if configs/budget.py:search trains it"
        in said
    )
    monkeypatch.setattr(student_candidates, "MENU", (*menu, Shape(3, 1 / 3)))  # of which nothing is known
    keys, said = choose_student(config(place))
    assert keys == shape(4, 11, 0) and "promises 90.0 %" in said
    like = Measured(LAYERS, WIDTH, "", "spread")
    for other in (replace(like, layers=LAYERS + 1), replace(like, width=2 * WIDTH), replace(like, vocabulary="24000")):
        of_another = (Shape(4, 1 / 3, 0, 90.0, other), Shape(2, 1 / 3, 0, 93.25, like))
        monkeypatch.setattr(student_candidates, "MENU", of_another)
        keys, said = choose_student(config(place))
        assert keys == shape(4, 11, 0) and "nothing is promised" in said


# Times


def test_the_largest_that_is_fast_enough_is_chosen(place: Path, deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student_candidates, "MENU", (FAST, SLOW))
    monkeypatch.setattr(student_candidates, "TIMED_SINGLE_TEXTS", 20)
    keys = {"teacher": str(deep), "budget.mb": 0.0}
    cfg, start = config(place, **keys | {"budget.ms": 1.0}), loading.load(str(deep))
    slow, fast = menu_candidates(cfg, start, "onnx")
    texts = timing_texts(cfg, open_teacher(str(deep), 0, "float32"))
    took = {it.keys["layers"]: timed_ms(start, it.config, "onnx", texts) for it in (slow, fast)}
    assert took[SLOW.layers] > 5 * took[FAST.layers]
    between = math.sqrt(took[SLOW.layers] * took[FAST.layers])
    assert choose_student(config(place, **keys | {"budget.ms": between}))[0]["layers"] == FAST.layers
    assert choose_student(config(place, **keys | {"budget.ms": 1e5}))[0]["layers"] == SLOW.layers
    with pytest.raises(UserError) as refused:
        choose_student(config(place, **keys | {"budget.ms": 1e-4}))
    assert "--config.budget.ms=0.0001: none of the 2 students of the menu is so fast in onnx" in str(refused.value)
    assert "the nearest has 1 layers, compact width 11" in str(refused.value) and " ms and 1.4 MB" in str(refused.value)


def test_a_machine_with_other_work_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Sleeper:
        """Takes 2 ms a text, and in its last pass 20."""

        num_params, calls = 0, 0

        def encode(self, texts: Sequence[str], *, batch_size: int) -> np.ndarray:
            self.calls += 1
            time.sleep(
                0.002 if self.calls <= 9 else 0.02
            )  # 3 texts: a first pass that is not counted, and two that are
            return np.zeros((1, 1), np.float32)

    with caplog.at_level(logging.WARNING, "jdistill"):
        assert 2 <= single_text_ms(Sleeper(), ["a", "b", "c"]) < 20
    assert "other work is going on here" in caplog.text


@pytest.mark.parametrize("runtime,precision", [("onnx", "int8"), ("torch", "float32"), ("torch", "int8")])
def test_each_form_is_timed(place: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, precision: str) -> None:
    keys = {"budget.runtime": runtime, "budget.precision": precision, "budget.ms": 1e5}
    monkeypatch.setattr(student_candidates, "TIMED_SINGLE_TEXTS", 3)
    assert " ms a text; " in choose_student(config(place, **keys))[1]


def test_texts_are_spread_over_the_source_and_queries_come_first(place: Path) -> None:
    cfg, teacher = config(place), open_teacher(str(place / "teacher"), 0, "float32")
    lines = (place / "text.txt").read_text().splitlines()
    texts = timing_texts(cfg, teacher)
    assert len(texts) == 100 and set(texts) < set(lines) and (texts[0], texts[-1]) == (lines[0], lines[-1])
    (place / "pairs.jsonl").write_text(json.dumps({"query": "how so", "positive": "a passage"}) + "\n")
    assert timing_texts(config(place, pairs=str(place / "pairs.jsonl")), teacher) == ["how so"]
    answers_only = replace(teacher, texts=iter(lines))
    assert timing_texts(config(place, text=""), answers_only) == lines[:100]
    (place / "parallel.jsonl").write_text(
        "".join(json.dumps({"source": a, "translation": a[::-1]}) + "\n" for a in lines)
    )
    assert timing_texts(config(place, text="", text_pairs=str(place / "parallel.jsonl")), teacher) == texts
    with pytest.raises(UserError, match="times students on the run's own text, and there is none: name --config.text,"):
        choose_student(config(place, text="", **{"budget.ms": 1e5}))


def test_other_pairs_choose_anew(place: Path) -> None:
    (place / "begun").mkdir()
    settled = config(place, text="", text_pairs="one.tsv", **dict.fromkeys(map("student.{}".format, SHAPE_KEYS), 3))
    (place / "begun" / "config.json").write_text(settled.to_json())
    assert chosen_before(config(place, text="", text_pairs="one.tsv"), place / "begun") == dict.fromkeys(SHAPE_KEYS, 3)
    assert chosen_before(config(place, text="", text_pairs="other.tsv"), place / "begun") is None


# Refusals


def test_a_budget_that_nothing_meets_names_the_nearest(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    menu = menu_candidates(config(place), loading.load(str(place / "teacher")), "onnx")
    nearest = "no student of the menu is so small in onnx and float32; .* 5, 32 inner neurons a layer: it needs .*=8000"
    with pytest.raises(UserError, match=f"--config.budget.mb=0.01: {nearest}") as refused:
        choose_student(config(place, **{"budget.mb": 0.01, "budget.ms": 1e5}))
    said = str(refused.value)
    needs, int8 = (float(mb) for mb in re.findall(r"needs ([0-9.]+) MB", said))
    assert menu[-1].mb <= needs < menu[-1].mb + 0.1  # rounded up, so that a budget of it is met
    choose_student(config(place, **{"budget.mb": needs}))
    choose_student(config(place, **{"budget.mb": int8, "budget.precision": "int8"}))


@pytest.mark.parametrize(
    "changes,what",
    [
        ({"budget.mb": -1.0}, "--config.budget.mb=-1.0: must be a number, 0 or more"),
        ({"budget.ms": -0.5}, "--config.budget.ms=-0.5: must be a number, 0 or more"),
        ({"budget.ms": math.nan}, "--config.budget.ms=nan: must be a number"),
        ({"budget.dim": -3}, "--config.budget.dim=-3: must be a whole number"),
        ({"budget.mb": 0.0}, "--config.budget.mb=0: must be above 0 where --config.budget.ms is 0"),
        ({"budget.runtime": "tvm"}, "--config.budget.runtime=tvm: must be one of onnx, torch"),
        ({"budget.precision": "int4"}, "--config.budget.precision=int4: must be one of float32, int8"),
        ({"student.hidden_size": 16}, "--config.student.hidden_size=16: must be 0 with a budget"),
        ({"onnx": False}, "--config.onnx=False: must be True, since --config.budget.runtime=onnx"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(place: Path, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError) as refused:
        config(place, **changes)
    assert what in str(refused.value)


def test_a_budget_is_for_methods_whose_students_the_menu_has(place: Path) -> None:
    cfg = ibkd.get_config()
    cfg.budget = config_file.get_config().budget
    with pytest.raises(UserError, match="--config.method=ibkd: a budget chooses students of simtde only"):
        check_config(cfg)
    cfg = config_file.get_config()
    del cfg.budget.runtime
    with pytest.raises(UserError, match="--config.budget lacks budget.runtime; begin with configs/budget.py"):
        check_config(cfg)


@pytest.mark.parametrize(
    "changes,what",
    [
        ({"student.layers": 3}, "--config.student.layers=3: the budget chooses it; leave it 0"),
        ({"student.embedding_size": -1}, "--config.student.embedding_size=-1: the budget chooses it"),
        ({"budget.dim": 16}, "--config.budget.dim=16: a student by SimTDE has vectors as wide as its teacher's, 32"),
    ],
)
def test_what_the_budget_cannot_choose_by_is_refused(place: Path, changes: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError) as refused:
        settle_student(config(place, **changes), None)
    assert what in str(refused.value)
    settle_student(config(place, **{"budget.dim": WIDTH}), None)  # the teacher's own


def test_a_sweep_refuses_a_budget(place: Path) -> None:
    with pytest.raises(UserError, match="a sweep does not take a config with a budget"):
        check_space(config(place), {})


def test_a_teacher_of_another_kind_is_refused_as_by_its_method(place: Path) -> None:
    save_encoder(make_decoder(), place / "decoder")
    with pytest.raises(UserError, match="SimTDE compresses the token embeddings of a BERT-like encoder"):
        settle_student(config(place, teacher=str(place / "decoder")), None)


def test_the_student_for_search_is_chosen_likewise(place: Path) -> None:
    cfg = config_file.get_config("search")
    cfg.update_from_flattened_dict(keys_of(place))
    check_config(cfg)
    settle_student(cfg.lock(), None)
    assert cfg.index_by == "teacher" and {key: cfg.student[key] for key in SHAPE_KEYS} == shape(4, 11, 0)
