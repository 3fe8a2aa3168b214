"""Which config a run's folder belongs to: that it began with, whatever is given again, and whatever keys there were then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from simtde_setting import config

from configs import d2llm, distilface, ibkd, simtde
from jdistill.core.errors import UserError
from jdistill.core.files import flat
from jdistill.run.workdir import BEFORE, check_may_be_run, clear_temporary, settle_config


def test_a_run_that_began_before_texts_were_packed_goes_on_padded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = json.loads(config(packed=False).to_json())
    del before["packed"]
    (tmp_path / "config.json").write_text(json.dumps(before))
    (tmp_path / "distil").mkdir()
    cfg = config()
    assert cfg.packed
    with caplog.at_level("INFO", logger="jdistill"):
        settle_config(cfg, tmp_path)
    assert "packed: False, as what began here before there was this key; True is not taken" in caplog.text
    assert not cfg.packed and "packed" not in json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(UserError, match="batch_size: 64 there, 8 now"):
        settle_config(config(batch_size=8), tmp_path)


def test_a_key_that_may_change_does_so_in_an_older_folder_which_stays_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = json.loads(config(packed=False, dtype="float32", teacher_dtype="float32").to_json())
    del before["packed"], before["student"]["vocabulary"], before["checkpoint_minutes"], before["index_by"]
    (tmp_path / "config.json").write_text(json.dumps(before))
    (tmp_path / "distil").mkdir()
    for _ in range(2):  # the second call meets what the first has written
        with caplog.at_level("INFO", logger="jdistill"):
            settle_config(cfg := config(log_every=7, checkpoint_minutes=3.0), tmp_path)
        assert (cfg.packed, cfg.log_every, cfg.checkpoint_minutes) == (False, 7, 3.0)
    assert caplog.text.count("checkpoint_minutes is 3.0 now, and was 0.0: it does not change the student") == 1
    written = json.loads((tmp_path / "config.json").read_text())
    assert written == before | {"log_every": 7, "checkpoint_minutes": 3.0}


def test_a_key_that_came_later_is_known_by_all_of_its_name(tmp_path: Path) -> None:
    """student.attention is no attention: a decoder's tokens saw what stood before them when there was neither."""
    before = json.loads(distilface.get_config().to_json())
    del before["attention"], before["student"]["attention"], before["loss"]["align"]
    (tmp_path / "config.json").write_text(json.dumps(before))
    (tmp_path / "distil").mkdir()
    settle_config(cfg := distilface.get_config(), tmp_path)
    assert (cfg.attention, cfg.student.attention, cfg.loss.align) == ("plain", "causal", 0.0)


def test_each_key_that_came_later_is_a_config_s() -> None:
    configs = (distilface, ibkd, d2llm, simtde)
    assert not BEFORE.keys() - {key for module in configs for key in flat(module.get_config().to_dict())}


def test_a_run_that_packs_does_not_go_on_padded(tmp_path: Path) -> None:
    settle_config(config(), tmp_path)
    (tmp_path / "distil").mkdir()
    with pytest.raises(UserError, match="packed: True there, False now"):
        settle_config(config(packed=False), tmp_path)


def test_what_a_defect_or_a_kill_left_is_in_no_ones_way(tmp_path: Path) -> None:
    """The trace of a defect in a folder that held nothing yet, and a checkpoint that was being written."""
    (tmp_path / "crash.txt").write_text("Traceback")
    check_may_be_run(tmp_path)
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(UserError, match="is not empty and holds no run .it holds notes.md.;"):
        check_may_be_run(tmp_path)
    for folder in ("distil", "trials/a/distil"):
        for name in ("537.orbax-checkpoint-tmp", "540"):
            (tmp_path / folder / "checkpoints" / name / "state").mkdir(parents=True)
    clear_temporary(tmp_path)
    assert [path.name for path in sorted(tmp_path.rglob("checkpoints/*"))] == ["540", "540"]


def test_a_folder_in_which_nothing_has_begun_takes_the_mended_config(tmp_path: Path) -> None:
    settle_config(config(teacher="no/such"), tmp_path)
    (tmp_path / "crash.txt").write_text("no such teacher")
    settle_config(config(teacher="mended"), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["teacher"] == "mended"
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(UserError, match="teacher: 'mended' there, 'other' now"):
        settle_config(config(teacher="other"), tmp_path)


def test_a_run_of_dtype_auto_goes_on_in_the_type_that_it_began_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle_config(began := config(), tmp_path)
    assert (began.dtype, began.teacher_dtype) == ("float32", "float32")
    (tmp_path / "distil").mkdir()
    monkeypatch.setenv("JDISTILL_DTYPE", "bfloat16")  # another machine
    settle_config(again := config(), tmp_path)
    assert (again.dtype, again.teacher_dtype) == ("float32", "float32")
    with pytest.raises(UserError, match="dtype: 'float32' there, 'bfloat16' now"):
        settle_config(config(dtype="bfloat16"), tmp_path)
    (tmp_path / "other").mkdir()
    settle_config(other := config(), tmp_path / "other")
    assert json.loads((tmp_path / "other" / "config.json").read_text())["dtype"] == other.dtype == "bfloat16"


def test_a_folder_in_which_nothing_has_begun_decides_no_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a first call leaves it that failed while it read."""
    settle_config(config(checkpoint="auto"), tmp_path)
    (tmp_path / "crash.txt").write_text("no such text")
    monkeypatch.setenv("JDISTILL_DTYPE", "bfloat16")
    settle_config(mended := config(checkpoint="auto", dev_retrieval="mine"), tmp_path)
    assert (mended.dtype, mended.checkpoint) == ("bfloat16", "best")
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"


def test_no_teacher_answers_in_float16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDISTILL_DTYPE", "float16")
    settle_config(cfg := config(), tmp_path)
    assert (cfg.dtype, cfg.teacher_dtype) == ("float16", "float32")


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        ({"dev_retrieval": "mine"}, "best"),
        ({"patience": 3}, "best"),
        ({"tune": ConfigDict({"patience": 3})}, "best"),
        ({"tune": ConfigDict({"patience": 0})}, "last"),
        ({}, "last"),
    ],
)
def test_checkpoint_auto_is_the_best_where_a_collection_tells_or_patience_ends(
    tmp_path: Path, keys: dict[str, object], chosen: str
) -> None:
    settle_config(cfg := config(checkpoint="auto", **keys), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["checkpoint"] == cfg.checkpoint == chosen


def test_a_run_that_began_with_a_checkpoint_of_its_own_goes_on_with_it(tmp_path: Path) -> None:
    settle_config(config(checkpoint="best"), tmp_path)
    (tmp_path / "distil").mkdir()
    settle_config(again := config(checkpoint="auto"), tmp_path)
    assert again.checkpoint == "best"
    settled = json.loads(config(patience=3, checkpoint="last").to_json())  # what auto was with patience, once
    (tmp_path / "config.json").write_text(json.dumps(settled))
    settle_config(patient := config(patience=3, checkpoint="auto"), tmp_path)
    assert patient.checkpoint == "last"
    before = json.loads(config().to_json())
    del before["checkpoint"]  # as of runs before there was the key
    (tmp_path / "config.json").write_text(json.dumps(before))
    settle_config(oldest := config(checkpoint="auto"), tmp_path)
    assert oldest.checkpoint == "best"


def test_another_programs_config_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"method": "bm25", "k1": 0.9}')
    with pytest.raises(UserError, match="no config of a run of jdistill's"):
        settle_config(config(), tmp_path)
    assert (tmp_path / "config.json").read_text() == '{"method": "bm25", "k1": 0.9}'
