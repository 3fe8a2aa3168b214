"""The folder of a run or a sweep, given where a model is wanted, is refused with where its student is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import make_encoder, save_encoder

from jdistill import search
from jdistill.core.errors import UserError
from jdistill.encoder import loading


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"method": "ibkd", "teacher": "t", "text": "a.txt"}))
    return folder


def test_a_run_that_has_not_ended_is_no_model(run: Path) -> None:
    with pytest.raises(
        UserError, match="--model=.*/run is the folder of a run that has not ended; .* into .*/run/export"
    ):
        loading.load(run)
    (run / "results.json").write_text("{}")
    with pytest.raises(UserError, match="is the folder of a run without its student; .* into .*/run/export"):
        loading.load(run)
    save_encoder(make_encoder(), run / "export")
    (run / "export" / "modules.json").write_text("[]")
    with pytest.raises(UserError, match="is the folder of a run; its student is .*/run/export"):
        loading.load(run)


def test_a_sweep_is_no_model_and_has_no_index(run: Path) -> None:
    (run / "trials" / "seed=0").mkdir(parents=True)
    with pytest.raises(UserError, match="is the folder of a sweep, which keeps scores and no student: train"):
        loading.load(run)
    with pytest.raises(UserError, match="--workdir=.*/run is the folder of a sweep, which keeps scores"):
        search.answer(run, "question", 1)


def test_a_models_own_config_is_no_runs(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(), tmp_path / "model")
    assert loading.load(folder).dim == make_encoder().dim
