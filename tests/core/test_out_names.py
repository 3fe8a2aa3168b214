"""A folder by another name is the same folder, and one that is replaced stays its group's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jdistill.core.errors import UserError
from jdistill.core.folders import check_out, replacing


@pytest.mark.parametrize("out", ["Runs/A", "Runs/A/export", "Runs"])
def test_a_runs_folder_is_refused_by_any_name_that_it_has(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a file system takes small letters for large; overwrite allows nothing of it."""
    (tmp_path / "runs" / "a" / "distil").mkdir(parents=True)
    (tmp_path / "Runs").symlink_to(tmp_path / "runs")  # stands for such a file system, which resolves no name
    (tmp_path / "runs" / "A").symlink_to(tmp_path / "runs" / "a")
    monkeypatch.setattr(Path, "resolve", lambda self, strict=False: Path(os.path.abspath(self)))
    monkeypatch.setattr(Path, "is_symlink", lambda self: False)
    with pytest.raises(UserError, match="is, holds or lies in the run's folder"):
        check_out(tmp_path / out, "export", "--out", overwrite=True, workdir=tmp_path / "runs" / "a")
    check_out(tmp_path / "runs" / "b", "export", "--out", workdir=tmp_path / "runs" / "a")


def test_in_a_groups_folder_what_is_made_is_the_groups(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2775)
    for _ in range(2):
        with replacing(tmp_path / "shared" / "out", "export", key="--out") as beside:
            (beside / "part").mkdir()
        mode = (tmp_path / "shared" / "out").stat().st_mode
        assert mode & stat.S_ISGID and (tmp_path / "shared" / "out" / "part").stat().st_mode & stat.S_ISGID
