"""What a command writes over: an empty folder, a new one, one of ours; nothing that a user put there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jdistill.core import files, folders
from jdistill.core.errors import UserError
from jdistill.core.folders import (
    check_out,
    check_out_file,
    own_folder,
    replacing,
)


def tree(folder: Path) -> dict[str, str]:
    """Every file with its content, hidden ones too."""
    return {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def made(out: Path, content: str = "ours", overwrite: bool = False) -> Path:
    with replacing(out, "export", key="--out", overwrite=overwrite) as beside:
        (beside / "model").write_text(content)
    return out


def test_a_new_an_empty_and_an_own_folder_are_replaced_whole(tmp_path: Path) -> None:
    for content in ("one", "two"):
        made(tmp_path / "out", content)
        assert (tmp_path / "out" / "model").read_text() == content and not files.damage(tmp_path / "out", "export")
    (tmp_path / "empty").mkdir()
    made(tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "out"]  # nothing is left beside them


@pytest.mark.parametrize("name", ["photo.jpg", "thesis/chapter.tex", ".hidden", "model"])
def test_what_a_user_put_there_is_never_replaced(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / "out" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("years of work")
    before = tree(tmp_path)
    for refused in (lambda: check_out(tmp_path / "out", "export", "--out"), lambda: made(tmp_path / "out")):
        with pytest.raises(UserError, match=f"--out=.*out is not empty.*{name}.*--overwrite"):
            refused()
    assert tree(tmp_path) == before
    made(tmp_path / "out", overwrite=True)
    assert sorted(tree(tmp_path / "out")) == [files.SEAL, "model"]


def test_a_file_that_was_added_to_an_export_is_named(tmp_path: Path) -> None:
    made(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="did not put there \\(notes.txt\\)"):
        made(tmp_path / "out")
    with files.adding_to(tmp_path / "out", "export"):  # what we add ourselves is ours
        (tmp_path / "out" / "head").write_text("of a classifier")
    with pytest.raises(UserError, match="\\(notes.txt\\)"):
        made(tmp_path / "out")
    (tmp_path / "out" / "notes.txt").unlink()
    made(tmp_path / "out")


def test_a_seal_of_another_kind_or_of_somebody_else_is_none(tmp_path: Path) -> None:
    for seal in (
        {"made_by": "jdistill", "kind": "index", "files": {}},
        {"made_by": "me", "kind": "export", "files": {}},
        [],
        3,
    ):
        folder = tmp_path / "out"
        folder.mkdir(exist_ok=True)
        (folder / files.SEAL).write_text(json.dumps(seal))
        (folder / "model").write_text("theirs")
        with pytest.raises(UserError, match="no export of jdistill's"):
            made(folder)


def test_siblings_with_temporary_looking_names_stay(tmp_path: Path) -> None:
    made(tmp_path / "out")
    for name in ("out.old", "out.partial", "out.part", "out.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "photo.jpg").write_text("mine")
    made(tmp_path / "out", "new")
    assert all((tmp_path / name / "photo.jpg").is_file() for name in ("out.old", "out.partial", "out.part", "out.tmp"))


def test_the_runs_folder_its_parents_and_what_lies_in_it_are_refused(tmp_path: Path, monkeypatch) -> None:
    workdir = tmp_path / "runs" / "one"
    (workdir / "distil").mkdir(parents=True)
    (tmp_path / "link").symlink_to(workdir)
    for out in (
        workdir,
        workdir.parent,
        tmp_path,
        workdir / "distil",
        workdir / "new",
        tmp_path / "runs" / "." / "one",
    ):
        with pytest.raises(UserError, match="is, holds or lies in the run's folder"):
            check_out(out, "export", "--out", overwrite=True, workdir=workdir)
    for out in (tmp_path / "link" / "x", tmp_path / "link"):
        with pytest.raises(UserError, match="is, holds or lies in|symbolic link"):
            check_out(out, "export", "--out", overwrite=True, workdir=workdir)
    monkeypatch.chdir(tmp_path)
    for out in (".", "..", "/", ""):
        with pytest.raises(UserError, match="--out="):
            check_out(Path(out), "export", "--out", overwrite=True)
    check_out(workdir.parent / "other", "export", "--out", workdir=workdir)


def test_files_and_links_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, message in (
        ("file", "is a file"), ("link", "symbolic link"), ("dangling", "symbolic link"), ("file/below", "is a file"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            check_out(tmp_path / name, "export", "--out", overwrite=True)
    with pytest.raises(UserError, match="--out=.*file is a file; name a folder"):
        made(tmp_path / "file", overwrite=True)  # as a folder within another that was checked
    assert (tmp_path / "file").read_text() == "mine"


def test_where_the_body_fails_the_folder_is_as_it_was(tmp_path: Path) -> None:
    made(tmp_path / "out", "old")
    before = tree(tmp_path)
    with pytest.raises(OSError, match="full"), replacing(tmp_path / "out", "export", key="--out") as beside:
        (beside / "half").write_text("half")
        raise OSError("full")
    assert tree(tmp_path) == before and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_swap_that_fails_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "out", "old")
    before, rename = tree(tmp_path), os.rename

    def fails(source: Path, target: Path) -> None:
        if "-new-" in str(source):
            raise OSError("the second rename")
        rename(source, target)

    monkeypatch.setattr(folders.os, "rename", fails)
    with pytest.raises(OSError, match="second rename"):
        made(tmp_path / "out", "new")
    assert tree(tmp_path) == before and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_kill_between_the_renames_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "out", "old")
    # What SIGKILL leaves there: the old folder moved away, the new one not yet in its place.
    away = tmp_path / f"{files.TEMPORARY}old-out-abc_1234"
    away.mkdir()
    (tmp_path / "out").rename(away / "out")
    half = tmp_path / f"{files.TEMPORARY}new-out-abc_1234"
    half.mkdir()
    (half / "model").write_text("half")
    with pytest.raises(ValueError, match="in the body"), replacing(tmp_path / "out", "export", key="--out"):
        raise ValueError("in the body")
    assert (tmp_path / "out" / "model").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_two_at_once_one_ends_and_the_other_is_told_who(tmp_path: Path) -> None:
    with replacing(tmp_path / "out", "export", key="--out") as beside:
        (beside / "model").write_text("first")
        with pytest.raises(UserError, match=f"in use by the writing of another process.*process {os.getpid()} on"):
            made(tmp_path / "out", "second")
    assert (tmp_path / "out" / "model").read_text() == "first"


def test_a_result_file_is_replaced_only_if_the_same_command_wrote_it(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    check_out_file(out, "--out", False, "jdistill.evaluate")
    out.write_text('{"made_by": "jdistill.evaluate"}')
    check_out_file(out, "--out", False, "jdistill.evaluate")
    for theirs in ("a diary", "{}", "[]", '{"made_by": "me"}', "[" * 100_000):
        out.write_text(theirs)
        with pytest.raises(UserError, match="is there already.*--overwrite"):
            check_out_file(out, "--out", False, "jdistill.evaluate")
        check_out_file(out, "--out", True, "jdistill.evaluate")
    with pytest.raises(UserError, match="is a folder; name a file"):
        check_out_file(tmp_path, "--out", True)
    with pytest.raises(UserError, match="is a file; name a folder"):
        check_out_file(out / "below.json", "--out", True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="no regular file"):
        check_out_file(tmp_path / "pipe", "--out", False)


def test_a_folder_for_several_files_is_new_empty_or_marked(tmp_path: Path) -> None:
    own_folder(tmp_path / "out", "comparison", "--out", False)
    (tmp_path / "out" / "compare.html").write_text("ours")
    own_folder(tmp_path / "out", "comparison", "--out", False)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "compare.html").write_text("mine")
    with pytest.raises(UserError, match="theirs is not empty"):
        own_folder(tmp_path / "theirs", "comparison", "--out", False)
    assert tree(tmp_path / "theirs") == {"compare.html": "mine"}


@pytest.mark.parametrize("change, said", [
    (lambda path: path.unlink(), "model is missing"),
    (lambda path: path.write_text("ourz"), "model has changed"),
    (lambda path: path.write_text(""), "model has changed"),
])  # fmt: skip
def test_damage_to_a_sealed_folder_is_named(tmp_path: Path, change, said: str) -> None:
    made(tmp_path / "out")
    assert files.damage(tmp_path / "out", "export") == []
    change(tmp_path / "out" / "model")
    assert files.damage(tmp_path / "out", "export") == [said]
    (tmp_path / "out" / files.SEAL).write_text("{")
    assert files.damage(tmp_path / "out", "export") == [f"{files.SEAL} is missing or damaged"]


def test_a_write_that_fails_leaves_the_file_before_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    files.write_json(tmp_path / "a.json", {"old": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        files.write_json(tmp_path / "a.json", {"new": 1})
    assert tree(tmp_path) == {"a.json": '{\n  "old": 1\n}\n'}


def test_what_a_finished_folder_vouches_for_is_never_written_over(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine"
    (run / "export").mkdir(parents=True)
    for name in ("results.json", "export/config.json", "notes.json"):
        (run / name).write_text("{}")
    files.seal(run / "export", "export", ["config.json"])
    files.seal(run, "run", ["results.json"])
    (tmp_path / "link").symlink_to(run)
    for out in (run / "results.json", run / "export/config.json", tmp_path / "link/results.json"):
        with pytest.raises(UserError, match="belongs to the (run|export) in .*choose another name"):
            check_out_file(out, "--out", True, "jdistill.evaluate")
    check_out_file(run / "notes.json", "--out", True)  # a user's own file
    check_out_file(run / "new.json", "--out", False)
    for folder, kind in ((run, "run"), (run / "export", "export")):
        with pytest.raises(UserError, match=f"holds the {kind} that jdistill made there"):
            own_folder(folder, "comparison", "--out", True)
        assert files.sealed_as(folder)[0] == kind
