"""When the processes of a run ask one another whether a signal came: after each step where steps are slow, else after some."""

from __future__ import annotations

import pytest

from jdistill.core import sharding
from jdistill.train import signals
from jdistill.train.signals import Agreement


@pytest.mark.parametrize(("seconds", "asked"), [(0.1, [1, 10, 20, 30]), (12.0, list(range(1, 32)))])
def test_slow_steps_are_asked_after_each(seconds: float, asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    now, found = 0.0, []
    monkeypatch.setattr(sharding, "process_count", lambda: 2)
    monkeypatch.setattr(sharding, "any_process", lambda flag: found.append(done) or flag)
    monkeypatch.setattr(signals.time, "monotonic", lambda: now)
    agreement = Agreement(0)
    for done in range(1, 32):
        now += seconds
        assert not agreement.reached([], done)
    assert sorted(set(found)) == asked


def test_one_process_obeys_at_once_and_several_where_any_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Agreement(0).reached(["SIGTERM"], 3) and not Agreement(0).reached([], 10)
    monkeypatch.setattr(sharding, "process_count", lambda: 2)
    monkeypatch.setattr(sharding, "any_process", lambda flag: True)
    assert Agreement(0).reached([], 10)
