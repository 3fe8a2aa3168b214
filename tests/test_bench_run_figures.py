"""bench/run_figures.py: which rows it makes of a finished run's results.json."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from commands import ROOT

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
from run_figures import rows_of

from jdistill.core.errors import UserError


def test_each_set_is_a_row_with_who_was_scored() -> None:
    results: dict[str, Any] = {
        "sts": {"STS12": 70.0, "Avg": 71.0},
        "retrieval": {"cisi": {"ndcg@10": 0.4, "kind": "Flat"}},
        "pairs": {"snli": {"student": {"ap": 80.0}, "teacher": {"ap": 92.0}}},
        "training": {"seconds": 5.0},
    }
    assert list(rows_of(results)) == [
        {"of": "sts", "set": "", "by": "", "STS12": 70.0, "Avg": 71.0},
        {"of": "retrieval", "set": "cisi", "by": "", "ndcg@10": 0.4},
        {"of": "pairs", "set": "snli", "by": "student", "ap": 80.0},
        {"of": "pairs", "set": "snli", "by": "teacher", "ap": 92.0},
    ]
    with pytest.raises(UserError, match="there are no figures in it"):
        list(rows_of({"training": {"seconds": 5.0}, "sts": {}}))
