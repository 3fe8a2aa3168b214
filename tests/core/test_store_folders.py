"""What a run finds in a store: its own folder, one that lost files or was removed or copied there, or another's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mirror_setting import contents, open_mirror, quick_store, write_checkpoint
from remote_setting import objects

from jdistill.core.errors import UserError
from jdistill.core.fetched import RUN_FILES
from jdistill.core.remote import Store
from jdistill.run.remote_workdir import mirrored_run


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return quick_store(tmp_path, monkeypatch)


def test_a_path_is_given_as_it_is(tmp_path: Path) -> None:
    with mirrored_run(tmp_path / "run") as folder:
        assert folder == tmp_path / "run"
    assert not folder.exists()


@pytest.mark.parametrize("name", ["/etc/checkpoints/1/x", "../checkpoints/1/x", "a/../../checkpoints/1/x"])
def test_a_list_whose_names_lead_out_is_refused(url: str, name: str) -> None:
    Store(url).write(RUN_FILES, json.dumps({"files": {name: [1, "x"]}}).encode())
    with pytest.raises(UserError, match="is damaged"):
        open_mirror(url)


@pytest.mark.parametrize("lost, fetched", [
    ("distil/checkpoints/10", False), ("distil/checkpoints", True), ("distil/checkpoints/20/state", True), ("config.json", True),
])  # fmt: skip
def test_a_mirror_that_lost_files_is_fetched_anew(url: str, lost: str, fetched: bool) -> None:
    """But not for an old checkpoint, which makes room for the next: what a cleaner of caches takes is not removed from the store."""
    mirror = open_mirror(url)
    (mirror.folder / "config.json").write_text("{}")
    write_checkpoint(mirror.folder, 10)
    write_checkpoint(mirror.folder, 20)
    mirror.store_changes()
    whole = contents(mirror.folder)
    (mirror.folder / lost).rename(mirror.folder.parent / "taken")
    again = open_mirror(url)
    again.store_changes()
    assert (contents(again.folder) == whole) == fetched
    assert ("distil/checkpoints/10/state/a" in objects(url)) == fetched


def test_a_run_that_was_removed_from_the_store_begins_anew(url: str) -> None:
    with mirrored_run(url) as folder:
        (folder / "config.json").write_text("{}")
    Store(url).delete(objects(url))
    with mirrored_run(url) as folder:
        assert not contents(folder)


def test_a_folder_that_was_copied_into_a_store_is_a_run(url: str, tmp_path: Path) -> None:
    config = {"method": "simtde", "teacher": "", "text": ""}
    (tmp_path / "config.json").write_text(json.dumps(config))
    Store(url).put(tmp_path / "config.json", "config.json")
    with mirrored_run(url) as folder:
        assert contents(folder) == {"config.json": json.dumps(config).encode()}


@pytest.mark.parametrize("content", ['{"method": "bm25"}', '{"model_type": "bert"}', "not JSON", "[1]"])
def test_a_folder_with_another_programs_config_is_refused_and_stays_as_it_is(url: str, content: str) -> None:
    Store(url).write("config.json", content.encode())
    with pytest.raises(UserError, match="holds no run .it holds config.json"), mirrored_run(url):
        pass
    assert set(objects(url)) == {"config.json"}


def test_a_folder_of_others_files_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    Store(url).put(tmp_path / "mine.txt", "mine.txt")
    with (
        pytest.raises(UserError, match=f"--workdir={url} is not empty and holds no run .it holds mine.txt"),
        mirrored_run(url),
    ):
        pass
    assert objects(url) == {"mine.txt": b"mine"}
