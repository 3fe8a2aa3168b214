"""Batches made ahead: each step's own, in their order, by one thread; what goes wrong is raised at its step."""

from __future__ import annotations

import threading

import pytest

from jdistill.train.ahead import BatchesAhead


@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_each_step_gets_its_own_batch(depth: int) -> None:
    made: list[int] = []
    threads = set()

    def make(step: int) -> int:
        threads.add(threading.current_thread().name)
        made.append(step)
        return step * 10

    ahead = BatchesAhead(map(make, range(5, 12)), depth)
    taken = [ahead.take() for _ in range(4)]
    ahead.close()
    assert taken == [50, 60, 70, 80]
    assert made == list(range(5, 5 + len(made))) and max(made) <= min(8 + depth, 11)
    assert len(threads) == 1 and (threading.current_thread().name in threads) == (depth == 0)


def test_nothing_beyond_the_last_step_is_made() -> None:
    made: list[int] = []
    ahead = BatchesAhead((made.append(step) or True for step in range(3)), 2)
    for _ in range(3):
        ahead.take()
    ahead.close()
    assert made == [0, 1, 2]


@pytest.mark.parametrize("depth", [0, 2])
def test_what_goes_wrong_is_raised_at_its_step(depth: int) -> None:
    def make(step: int) -> int:
        if step == 2:
            raise OSError("the disk is full")
        return step

    ahead = BatchesAhead(map(make, range(9)), depth)
    assert [ahead.take(), ahead.take()] == [0, 1]
    with pytest.raises(OSError, match="the disk is full"):
        ahead.take()
    ahead.close()


def test_the_step_does_not_wait_for_what_is_ready() -> None:
    """While the step that reads one batch is under way, the next is made."""
    release, begun = threading.Event(), threading.Event()

    def make(step: int) -> int:
        if step == 1:
            begun.set()
            assert release.wait(60)
        return step

    ahead = BatchesAhead(map(make, range(4)), 1)
    assert ahead.take() == 0
    assert begun.wait(60)  # though nobody has asked for it
    release.set()
    assert ahead.take() == 1
    ahead.close()
