"""What a resumed stage must share with the one that began: its data, its steps, and the models beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.train import origins
from jdistill.train.origins import (
    BASE,
    HELD_OUT,
    OF_DEV_SETS,
    READS_AS,
    STUDENT_VOCABULARY,
    TRANSLATED_OF,
    check_same_data,
    check_same_run,
    devices_over,
)

BEGAN: dict[str, Any] = {
    "texts": 3,
    "data": "a",
    "steps": 5,
    "origins": {"the teacher": "1", STUDENT_VOCABULARY: "2", BASE: "3", OF_DEV_SETS: "4"}
    | {READS_AS: "5", HELD_OUT: "6", TRANSLATED_OF: "7"},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"origins": {"the teacher": "1"}}, ""),
        ({"origins": {"the judge": "7"}}, ""),  # of which a checkpoint of an older version says nothing
        ({"data": "b"}, "text has changed since .*stage began.*of other content or order"),
        ({"data": "b", "texts": 2}, "it was 3 texts and is now 2[.]"),
        (
            {"data": "b", "origins": {"the teacher": "9"}},
            "the teacher changed since",
        ),  # as pairs are known by their judge
        ({"data": "b", "origins": {STUDENT_VOCABULARY: "9"}}, "text has changed since"),
        ({"data": "b", "origins": {READS_AS: "9", HELD_OUT: "9", TRANSLATED_OF: "9"}}, "text has changed since"),
        ({"origins": {READS_AS: "9"}}, "how the student reads a text has changed since .*stage began: other tokenizer"),
        ({"origins": {HELD_OUT: "9"}}, "the text that is held out has changed since .*stage began"),
        (
            {"origins": {TRANSLATED_OF: "9"}},
            "what the teacher is asked for each translation has changed since .*text_pairs",
        ),
        ({"steps": 6}, "began as a run of 5 steps and this config asks for 6"),
        ({"origins": {"the teacher": "9"}}, "the teacher changed since .*stage began: other weights"),
        ({"origins": {"the teacher": "9", BASE: "9"}}, "the teacher and the base model changed"),
        ({"origins": {OF_DEV_SETS: "9"}}, "what the dev sets hold has changed since .*stage began"),
        (
            {"data": "b", "origins": {OF_DEV_SETS: "9"}},
            "what the dev sets hold has changed",
        ),  # whose texts the text lacks
        ({"origins": {STUDENT_VOCABULARY: "9", BASE: "9"}}, "the student's vocabulary has changed since .*stage began"),
    ],
)
def test_what_changed_is_named(changes: dict[str, Any], message: str) -> None:
    if not message:
        check_same_run(BEGAN, BEGAN | changes, Path("stage"))
        check_same_run({name: BEGAN[name] for name in ("texts", "data", "steps")}, BEGAN | changes, Path("stage"))
        return
    with pytest.raises(UserError, match=message):
        check_same_run(BEGAN, BEGAN | changes, Path("stage"))


@pytest.mark.parametrize(
    ("before", "goes_on", "told"),
    [
        ("", True, "8 x cpu"),
        ("8 x cpu", True, "8 x cpu"),
        ("8 x H200", False, "8 x H200"),  # trained whole there, and finished here
        ("8 x H200", True, "8 x H200, then 8 x cpu"),
        ("8 x H200, then 8 x cpu", True, "8 x H200, then 8 x cpu"),
        ("18 x cpu", True, "18 x cpu, then 8 x cpu"),
    ],
)
def test_a_stage_names_the_devices_that_trained_it(
    before: str, goes_on: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "describe_compute", lambda: "8 x cpu")
    assert devices_over({"devices": before} if before else {}, goes_on) == told


def test_processes_that_read_other_data_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_same_data(BEGAN, Path("stage"))
    first = sharding.broadcast
    monkeypatch.setattr(sharding, "broadcast", lambda mine: first(mine) + 1)  # the first process has others
    with pytest.raises(UserError, match="stage: not all processes .*this one has 3 texts for 5 steps"):
        check_same_data(BEGAN, Path("stage"))
