"""A folder by another name is the same folder, and one that is replaced stays its group's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jdistill.core.errors import UserError
from jdistill.core.files import seal
from jdistill.core.folders import check_out, check_out_file, replacing


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


@pytest.mark.parametrize(
    "name",
    ["config.json", "jdistill.json", "export/jdistill.json", "distil/metrics.jsonl", "distil/checkpoints/10/state"],
)
def test_what_a_run_goes_on_by_is_not_written_over_whatever_is_allowed(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "distil" / "checkpoints" / "10").mkdir(parents=True)
    (run / "export").mkdir()
    for file in ("results.json", "distil/metrics.jsonl", "distil/checkpoints/10/state", "export/model.json"):
        (run / file).write_text("{}")
    (run / "config.json").write_text('{"method": "simtde", "teacher": "", "text": ""}')
    seal(run / "export", "export", ["model.json"])
    seal(run, "run", ["results.json"])
    with pytest.raises(UserError, match="belongs to the (run|export) in .*choose another name"):
        check_out_file(run / name, "--out", overwrite=True)
    for mine in ("notes.json", "distil/notes.json"):
        check_out_file(run / mine, "--out", overwrite=True)
    (run / "notes.json").write_text("{}")
    check_out_file(run / "notes.json", "--out", overwrite=True)
