"""Folders of an older jdistill still load: tests/golden/old_run.tar.xz holds a run, its teacher and its cache, made on 2026-11-23."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT, command, run_inside
from golden import GOLDEN

from jdistill.encoder import loading


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "old_run.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def again(place: Path) -> str:
    """The run's own command; returns its log."""
    keys = json.loads((place / "keys.json").read_text())
    keys |= {"epochs": 1.0, "student.copy_layers": "last"}  # the config's own when the run was made
    done = run_inside(command(str(ROOT / "configs/simtde.py"), Path("run"), keys), place)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def test_a_finished_run_is_taken_as_it_is(place: Path) -> None:
    """Its report, which the archive lacks, is made again; nothing is trained or asked."""
    weights = (place / "run/export/model.safetensors").read_bytes()
    said = again(place)
    assert "training distil" not in said and "asked" not in said and (place / "run/report.html").exists(), said
    assert (place / "run/export/model.safetensors").read_bytes() == weights
    assert "is complete" in again(place)


def test_a_half_finished_run_goes_on_from_its_checkpoint_and_cache(place: Path) -> None:
    run = place / "run"
    for path in (run / "distil/checkpoints/8", run / "export", run / "index"):
        shutil.rmtree(path)
    for path in (run / "results.json", run / "jdistill.json"):
        path.unlink()
    said = again(place)
    assert "resuming distil at step 4 of 8" in said and "asked" not in said and "tokenised" not in said, said
    assert_gives_what_it_gave(place)


def test_an_old_export_gives_what_it_gave(place: Path) -> None:
    assert_gives_what_it_gave(place)


def assert_gives_what_it_gave(place: Path) -> None:
    """vectors.json: two texts, and what the export gave for them when it was made."""
    written = json.loads((place / "vectors.json").read_text())
    found = loading.load(str(place / "run/export")).encode(written["texts"])
    np.testing.assert_allclose(found, written["vectors"], rtol=0, atol=1e-5)  # unit vectors
