"""Folders that several processes share: one that not all see is refused in all, and what comes late is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jdistill.core import sharding, shared_folders
from jdistill.core.errors import UserError
from jdistill.core.shared_folders import awaited, check_shared, made_once


@pytest.fixture
def of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """This is the second process of two; the list: what others answer when all are asked, one question after another."""
    first: list[bool] = []
    monkeypatch.setattr(sharding, "process_count", lambda: 2)
    monkeypatch.setattr(sharding, "is_first_process", lambda: False)
    monkeypatch.setattr(sharding, "broadcast", lambda tree: np.array([1, 2], np.uint32))
    monkeypatch.setattr(sharding, "barrier", lambda what: None)
    monkeypatch.setattr(sharding, "any_process", lambda flag: flag or bool(first and first.pop(0)))
    monkeypatch.setattr(shared_folders, "SEEN_WITHIN", 0.3)
    monkeypatch.setattr(shared_folders, "LOOK_EVERY", 0.01)
    yield first


def test_a_folder_that_another_machine_does_not_see_is_refused(of_two: list[bool], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--workdir=runs/x: not all machines of the run see this folder"):
        check_shared(tmp_path, "--workdir=runs/x")
    (tmp_path / ".jdistill-seen-0000000100000002").touch()  # which the first has written
    check_shared(tmp_path, "--workdir=runs/x")
    of_two += [False, True]  # the first has written, and a third sees nothing
    with pytest.raises(UserError, match="not all machines"):
        check_shared(tmp_path, "--workdir=runs/x")


def test_the_first_leaves_nothing_there(of_two: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "is_first_process", lambda: True)
    check_shared(tmp_path / "new", "--workdir=runs/x")
    assert list((tmp_path / "new").iterdir()) == []


def test_what_comes_late_is_waited_for_where_there_are_others(
    of_two: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[int | None] = [None, None, 7, 8]
    assert awaited(lambda: answers.pop(0)) == 7
    assert awaited(lambda: None) is None
    monkeypatch.setattr(sharding, "process_count", lambda: 1)
    answers = [None, 9]
    assert awaited(lambda: answers.pop(0)) is None and answers == [9]


def test_a_file_that_cannot_be_read_back_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a.json, which holds topics, was written and cannot be seen here"):
        made_once(tmp_path / "a.json", lambda: None, lambda: None, "topics")
    assert made_once(tmp_path / "a.json", lambda: 7, lambda: None, "topics") == 7


def test_what_the_first_process_refuses_is_refused_in_all(of_two: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    of_two.append(True)
    with pytest.raises(UserError, match="the first process did not pass the check of room, see its message"):
        sharding.by_first_process(lambda: ran.append("here"), "the check of room")
    assert not ran
    monkeypatch.setattr(sharding, "is_first_process", lambda: True)

    def refuse() -> None:
        raise UserError("no room")

    with pytest.raises(UserError, match="no room"):
        sharding.by_first_process(refuse, "the check of room")
