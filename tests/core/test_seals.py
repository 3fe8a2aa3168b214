"""What a folder's seal vouches for, and what it goes on telling when something is added."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jdistill.core import files
from jdistill.core.folders import replacing


def made(out: Path) -> None:
    with replacing(out, "export", key="--out") as beside:
        (beside / "model").write_text("ours")


def test_what_was_damaged_before_something_is_added_stays_damaged(tmp_path: Path) -> None:
    made(tmp_path / "out")
    (tmp_path / "out" / "gone").write_text("a second file")
    files.seal(tmp_path / "out", "export")
    (tmp_path / "out" / "model").write_text("changed")
    (tmp_path / "out" / "gone").unlink()
    with files.adding_to(tmp_path / "out", "export"):
        (tmp_path / "out" / "head").write_text("of a classifier")
    assert files.damage(tmp_path / "out", "export") == ["gone is missing", "model has changed"]
    with files.adding_to(tmp_path / "out", "export"):  # what is written anew meanwhile is whole again
        files.write_bytes(tmp_path / "out" / "model", b"anew")
    assert files.damage(tmp_path / "out", "export") == ["gone is missing"]


def test_a_seal_without_its_files_is_none(tmp_path: Path) -> None:
    made(tmp_path / "out")
    content = json.loads((tmp_path / "out" / files.SEAL).read_text())
    content = {name: value for name, value in content.items() if name not in ("files", files.CHECKSUM)}
    (tmp_path / "out" / files.SEAL).write_text(json.dumps(content | {files.CHECKSUM: files._checksum(content)}))
    assert files.read_seal(tmp_path / "out", "export") is None
    assert files.damage(tmp_path / "out", "export") == [f"{files.SEAL} is missing or damaged"]
    assert files.sealed_as(tmp_path / "out") == ("", set())


def test_threads_that_read_the_mask_leave_it(tmp_path: Path) -> None:
    before = files.umask()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: files.umask(), range(4000))) == {before}
    assert files.umask() == before
