"""A finished run whose checkpoints are gone: complete as it is, and no part of it is made again from another training."""

from __future__ import annotations

import shutil
from pathlib import Path

from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from finished_setting import command


def test_a_finished_run_without_checkpoints_is_not_trained_anew(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(150)) + "\n")
    place, finished = tmp_path, tmp_path / "run"
    assert run_inside(command(place, "run")).returncode == 0
    shutil.rmtree(finished / "distil/checkpoints")
    complete = run_inside(command(place, finished.name))
    assert complete.returncode == 0 and "is complete" in complete.stderr
    before = {path: path.read_bytes() for path in sorted(finished.rglob("*")) if path.is_file()}
    done = run_inside(command(place, finished.name, index_texts=40))
    assert done.returncode == 2 and "keeps no checkpoint, from which alone a part can be made again" in done.stderr
    after = {path: path.read_bytes() for path in sorted(finished.rglob("*")) if path.is_file()}
    assert {path.name for path in after if after[path] != before.get(path)} <= {"config.json"}
