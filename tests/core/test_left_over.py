"""Half-written files: a deletion that is refused ends no run and is said, and whoever holds the place next sweeps it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from jdistill.core import left_over, scratch
from jdistill.core.files import TEMPORARY, write_json, writing_beside
from jdistill.core.folders import clear_swap, replacing
from jdistill.core.left_over import clear_beside, clear_left_over
from jdistill.core.progress import log
from jdistill.core.scratch import scratch_folder
from jdistill.data.batching.kept_tokens import in_this_process, tokenize_once
from jdistill.data.text.kept_split import split_kept
from jdistill.data.text.kept_texts import keep_source

LONG = "n" * 120 + ".json"  # longer than what a temporary name holds of it


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(log, "propagate", True)
    return caplog


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No temporary file or folder can be deleted, until .undo() is called."""
    unlink, rmtree = os.unlink, shutil.rmtree

    def refusing_unlink(path: str | Path, **how: object) -> None:
        if Path(path).name.startswith(TEMPORARY):
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, **how)  # type: ignore[arg-type]

    def refusing_rmtree(path: Path, *args: object, **how: object) -> None:
        if Path(path).name.startswith(TEMPORARY):
            raise PermissionError(13, "Permission denied", str(path))
        rmtree(path, *args, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "unlink", refusing_unlink)
    monkeypatch.setattr(shutil, "rmtree", refusing_rmtree)
    return monkeypatch


def strays(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(f"{TEMPORARY}*") if not path.name.startswith(f"{TEMPORARY}lock")]


@pytest.mark.parametrize("name", ["a.json", LONG, "with [brackets].json"])
def test_only_what_was_written_for_the_file_is_taken(tmp_path: Path, refused: pytest.MonkeyPatch, name: str) -> None:
    other = "big-a.json" if name == "a.json" else "another.json"
    for path in (tmp_path / name, tmp_path / other):
        with pytest.raises(KeyboardInterrupt), writing_beside(path):
            raise KeyboardInterrupt
    (tmp_path / f"{TEMPORARY}lock-{name}").touch()
    write_json(tmp_path / name, "whole")
    assert len(strays(tmp_path)) == 2
    refused.undo()
    clear_beside(tmp_path / name)
    assert [stray[-len(other) :] for stray in strays(tmp_path)] == [other]
    assert (tmp_path / name).read_text() == '"whole"\n' and (tmp_path / f"{TEMPORARY}lock-{name}").exists()


def test_a_folder_is_swept_but_for_its_locks_and_what_is_whole(tmp_path: Path) -> None:
    (tmp_path / "in" / f"{TEMPORARY}new-out-x" / "deep").mkdir(parents=True)
    (tmp_path / "in" / f"{TEMPORARY}x-a.json").touch()
    (tmp_path / f"{TEMPORARY}lock-a").touch()
    (tmp_path / "in" / f"{TEMPORARY}link").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "a.json").touch()
    clear_left_over(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left == {"in", "in/a.json", f"{TEMPORARY}lock-a"}


def test_what_another_command_writes_beside_a_folder_whose_name_begins_alike_stays(tmp_path: Path) -> None:
    away = tmp_path / f"{TEMPORARY}old-out-int8-abc_1234"
    with replacing(tmp_path / "out-int8", "export", key="--out") as beside:
        away.mkdir()
        clear_swap(tmp_path / "out")
        assert beside.is_dir() and away.is_dir()
    clear_swap(tmp_path / "out-int8")
    assert strays(tmp_path) == []


def test_what_was_moved_away_for_a_swap_that_never_came_is_brought_back(tmp_path: Path) -> None:
    for name, content in (("export", "old"), ("index", "of an earlier swap")):
        away = tmp_path / "in" / f"{TEMPORARY}old-{name}-abc_1234" / name
        away.mkdir(parents=True)
        (away / "model").write_text(content)
    (tmp_path / "in" / "index").mkdir()  # whose swap came
    clear_left_over(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert left == {"in", "in/export", "in/export/model", "in/index"}


def test_a_refused_deletion_is_said_and_what_it_left_is_swept_by_the_next(
    tmp_path: Path, refused: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    def tokens(texts: list[str]) -> list[list[int]]:
        return [[1, 2] for _ in texts]

    first = tokenize_once(["a", "b", "c"], in_this_process(tokens), "t", tmp_path, chunk=2)
    assert [stray.startswith(f"{TEMPORARY}shards-") for stray in strays(tmp_path)] == [True]
    assert "cannot be deleted ([Errno 13] Permission denied" in told.text and "the next run tries again" in told.text
    refused.undo()
    again = tokenize_once(["a", "b", "c"], in_this_process(tokens), "t", tmp_path, chunk=2)
    assert strays(tmp_path) == [] and again.ids.tolist() == first.ids.tolist() == [1, 2] * 3


def test_the_split_sweeps_what_a_process_that_died_left(tmp_path: Path, refused: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"sentence {i}\n" for i in range(30)))
    kept = keep_source(str(text), "", "config.text", tmp_path / "cache")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    refused.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        split_kept(kept, [], 3, 0, seed=0)
    assert len(strays(tmp_path)) == 1
    refused.undo()
    training, held_out, _ = split_kept(kept, [], 3, 0, seed=0)
    assert strays(tmp_path) == [] and (len(training), len(held_out)) == (27, 3)


def test_a_folder_to_sort_in_is_swept_once_its_process_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scratch_folder(tmp_path) as another:
        with monkeypatch.context() as killed:
            killed.setattr(scratch, "take_away", lambda _: None)
            with scratch_folder(tmp_path) as left:
                (left / "keys").touch()
        with scratch_folder(tmp_path) as own:
            assert another.is_dir() and own.is_dir() and not left.exists()
    assert strays(tmp_path) == []


def test_what_is_gone_meanwhile_is_no_fault(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    left_over.take_away(tmp_path / "none")
    assert told.text == ""


def test_a_sweep_takes_up_a_study_whose_lock_was_left(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from jdistill.sweep.trials import open_study

    open_study(tmp_path / "study.log", prune=False).enqueue_trial({"x": 1})
    (tmp_path / "study.log.lock").symlink_to(tmp_path / "study.log")
    (tmp_path / "study.log.lock0-1.rename").symlink_to(tmp_path / "study.log")
    assert [trial.system_attrs["fixed_params"] for trial in open_study(tmp_path / "study.log", prune=False).trials] == [
        {"x": 1}
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["study.log"]


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    """As an export into the folder of a run that begins meanwhile."""
    with replacing(tmp_path / "export", "export", key="--out") as beside:
        (beside / "model").write_text("half")
        clear_left_over(tmp_path)
        assert (beside / "model").exists()
        stale = tmp_path / beside.name.replace("-export-", "-other-")
        stale.mkdir()
        clear_left_over(tmp_path)
        assert not stale.exists()
    assert (tmp_path / "export" / "model").read_text() == "half"
