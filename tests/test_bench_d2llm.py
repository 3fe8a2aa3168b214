"""bench/d2llm_table.py: its control differs from the student by the judge alone, and its rival has what the student has."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from commands import ROOT

sys.path += [str(ROOT / "bench"), str(ROOT)]  # behind tests: bench has a parity.py too
import d2llm_table

from configs import d2llm
from jdistill.core.files import flat


def settled(row: str, variant: str, extra: tuple[str, ...] = ()) -> dict[str, object]:
    """The keys of a row's run."""
    flags = argparse.Namespace(variant=variant, extra=list(extra), workdir=Path("runs"))
    name, keys = d2llm_table.changes_of(flags, row)
    cfg = d2llm.get_config(name)
    given = dict(part.removeprefix("--config.").split("=", 1) for part in extra)
    for key, value in (given | keys).items():
        was = flat(cfg.to_dict())[key]
        cfg.update_from_flattened_dict({key: value == "True" if isinstance(was, bool) else type(was)(value)})
    return flat(cfg.to_dict())


@pytest.mark.parametrize("variant", ["", "calibrated", "beside_cosine"])
def test_the_control_lacks_the_judge_and_nothing_else(variant: str) -> None:
    extra = ("--config.unlabelled_asymmetric=questions.txt",)
    student, labels = settled("student", variant, extra), settled("labels", variant, extra)
    differ = {key for key in student if student[key] != labels[key]}
    assert differ <= set(d2llm_table.WITHOUT_JUDGE) and "loss.imitate" in differ


@pytest.mark.parametrize("variant", ["", "calibrated", "beside_cosine"])
@pytest.mark.parametrize("row", [*d2llm_table.ABLATIONS, "cos-sym"])
def test_an_ablation_lacks_what_it_is_named_for_and_nothing_else(variant: str, row: str) -> None:
    student, ablation = settled("student", variant), settled(row, variant)
    changed = d2llm.VARIANTS["cosine" if row == "cos-sym" else row] | ({"asymmetric": ""} if row == "cos-sym" else {})
    assert {key for key in student if student[key] != ablation[key]} == {
        key for key, value in changed.items() if student[key] != value
    }
    assert all(ablation[key] == value for key, value in changed.items())


@pytest.mark.parametrize("variant", ["", "calibrated"])
def test_the_bi_encoder_has_the_students_negatives_and_in_a_row_its_pooler(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d2llm_table, "run", lambda *_: Path("student"))
    monkeypatch.setattr(d2llm_table, "equal_rank", lambda _, pooling: {"lasttoken": 129, "pma": 100}[pooling])
    student = settled("student", variant)
    for row, pooling, rank in (("bi_encoder", "lasttoken", 129), ("bi_encoder_pma", student["pooling"], 100)):
        of_row = settled(row, variant)
        assert (of_row["pooling"], of_row["lora.rank"], of_row["lora.alpha"]) == (pooling, rank, 2.0 * rank)
        assert of_row["loss.random_negatives"] == student["loss.random_negatives"]
        assert not any(
            of_row[f"loss.{term}"] for term in ("alpha", "beta", "gamma", "delta", "vectors", "listed", "imitate")
        )
    asked = settled("bi_encoder", variant, ("--config.loss.random_negatives=none",))
    assert asked["loss.random_negatives"] == "none"
