"""A sweep's settings over their seeds: one mean for each, and one that lost a seed is not the best."""

from __future__ import annotations

import shlex

import pytest

from jdistill.report.sweep import best_by_value, over_seeds, settings_table
from jdistill.sweep.command import best_line


def test_a_setting_that_lost_a_seed_is_not_the_best() -> None:
    """The mean of those that survived is that of the luckier ones."""
    scores = {0.1: (60.0, 61.0, 62.0), 0.2: (70.0, None, None), 0.3: (None, None, None)}
    rows = [
        {"params": {"tau": tau, "seed": seed}, "score": score, "state": "complete" if score else "pruned", "curve": {}}
        for tau, of in scores.items()
        for seed, score in enumerate(of)
    ]
    groups = over_seeds(rows)
    assert [(group["params"]["tau"], group["mean"]) for group in groups] == [(0.1, 61.0), (0.2, 70.0)]
    assert [row[-1] for row in settings_table(groups).rows] == ["3", "1 of 3"]
    assert best_line(rows) == "best: dev score 61.00 (mean of 3 seeds) by --config.tau=0.1"
    prompt = [row | {"params": {"query_prompt": "query: it's "}} for row in rows[:1]]
    assert shlex.split(best_line(prompt))[-1] == "--config.query_prompt=query: it's "
    assert best_line(rows[3:]) == "best: dev score 70.00 (1 of 3 seeds) by --config.tau=0.2"


def test_seeds_are_one_setting_and_a_bar_is_the_best_over_the_other_keys() -> None:
    scores = {(0.1, 1e-3): (50.0, 54.0), (0.1, 1e-4): (60.0, 62.0), (0.2, 1e-3): (55.0, 55.0)}
    rows = [
        {"params": {"tau": tau, "lr": lr, "seed": seed}, "score": score, "state": "complete", "curve": {}}
        for (tau, lr), both in scores.items()
        for seed, score in enumerate(both)
    ]
    rows.append({"params": {"tau": 0.2, "lr": 1e-5, "seed": 0}, "score": None})
    groups = over_seeds(rows)
    lucky = {
        "params": {"tau": 0.2, "lr": 1e-3, "seed": 2},
        "score": 70.0,
    }  # the luckiest single trial, whose mean is 60
    assert best_line([lucky, *rows]) == "best: dev score 61.00 (mean of 2 seeds) by --config.tau=0.1 --config.lr=0.0001"
    alone = "best: dev score 70.00 by --config.tau=0.2 --config.lr=0.001 --config.seed=2"
    assert best_line([lucky]) == alone and not best_line(rows[-1:])
    assert [group["mean"] for group in groups] == [61.0, 55.0, 52.0]
    assert groups[0]["spread"] == pytest.approx(2**0.5) and groups[0]["count"] == 2
    found = best_by_value(groups, "tau")
    assert {value: of["mean"] for value, of in found.items()} == {0.1: 61.0, 0.2: 55.0} and list(found) == [0.1, 0.2]
