"""The menu's promises: to students as they were measured, and to no others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import tiny_config
from ml_collections import ConfigDict

from configs import budget, search
from jdistill.models.bert.student import student_config
from jdistill.models.registry import count_parameters
from jdistill.students.menu import MENU, MINILM, Shape

WHOLE = tiny_config(  # all-MiniLM-L6-v2's sizes
    embedding_size=384, hidden_size=384, num_layers=6, num_heads=12, intermediate_size=1536, max_positions=512
)
SEARCH = budget.get_config("search").student


def student(**changes: str) -> ConfigDict:
    """cfg.student of configs/budget.py:search, changed."""
    return ConfigDict({**SEARCH.to_dict(), **changes})


def test_configs_budget_search_is_what_was_measured() -> None:
    measured = [it for it in MENU if it.retention is not None]
    assert len(measured) >= 5 and all(it.promise(WHOLE, student()) == it.retention for it in measured)


@pytest.mark.parametrize("changes", [{"vocabulary": ""}, {"vocabulary": "8000"}, {"copy_layers": "spread"}])
def test_a_student_of_fewer_layers_that_differs_is_promised_nothing(changes: dict[str, str]) -> None:
    assert Shape(4, 1 / 3, 2, 90.0, MINILM).promise(WHOLE, student(**changes)) is None


def test_which_layers_are_copied_is_nothing_to_a_student_of_all() -> None:
    all_layers = Shape(6, 1 / 3, 2, 90.0, MINILM)
    assert all_layers.promise(WHOLE, student(copy_layers="spread")) == 90.0
    assert all_layers.promise(WHOLE, student(vocabulary="8000")) is None


def test_another_start_is_promised_nothing() -> None:
    for other in (replace(WHOLE, num_layers=12), replace(WHOLE, hidden_size=768, embedding_size=768)):
        assert Shape(4, 1 / 3, 2, 90.0, MINILM).promise(other, student()) is None


def test_students_for_search_have_as_many_parameters_as_their_page_says() -> None:
    def parameters(variant: str) -> int:
        keys = search.get_config(variant).student
        return count_parameters(student_config(replace(WHOLE, vocab_size=int(keys.vocabulary)), keys))

    assert [parameters(variant) for variant in ("", "wide")] == [9_454_528, 9_315_840]
