"""Where a defect is, as a command's last line tells it: in our code, or in a method, set or source of the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jdistill.core import errors
from jdistill.losses.embedding import unit


def said_of(act: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(errors, "_crash_folder", tmp_path)
    with pytest.raises(Exception) as raised:  # whichever it is
        act()
    return errors._crash(raised.value)


def test_of_ours_the_innermost_line_is_named_below_which_a_library_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = said_of(lambda: unit(np.array(["a text"])), tmp_path, monkeypatch)
    assert re.search(r"^error: a defect in jdistill \(\w+, jdistill/losses/embedding\.py:\d+\): see .*crash\.txt", said)


def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own_method.py"
    own.write_text("def objective(reps):\n    return reps['sentense']\n")
    names: dict = {}
    exec(compile(own.read_text(), str(own), "exec"), names)
    said = said_of(lambda: names["objective"]({}), tmp_path, monkeypatch)
    assert said.startswith(f"error: a defect in {own}:2 (KeyError): see {tmp_path / 'crash.txt'}")
    assert "own_method.py" in (tmp_path / "crash.txt").read_text()


def test_a_library_wherever_it_was_installed_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, own = tmp_path / "lib" / "python3" / "dist-packages" / "other.py", tmp_path / "own_method.py"
    library.parent.mkdir(parents=True)
    library.write_text("def divide(a):\n    return a / 0\n")
    own.write_text("def objective(a):\n    return divide(a)\n")
    names: dict = {}
    for path in (library, own):
        exec(compile(path.read_text(), str(path), "exec"), names)
    said = said_of(lambda: names["objective"](1), tmp_path, monkeypatch)
    assert said.startswith(f"error: a defect in {own}:2 (ZeroDivisionError)")
