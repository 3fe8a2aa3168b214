"""The room that a stage is asked for: as many checkpoints as it writes, each with all that stands in it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict
from simtde_setting import config

from configs import ibkd as ibkd_file
from jdistill.core.errors import UserError
from jdistill.run import preflight
from jdistill.run.preflight import (
    OTHER_BYTES,
    check_batches,
    check_index,
    check_room,
    checkpoint_bytes,
    checkpoints_kept,
)
from jdistill.run.stages import indexed_width, stages_of

MIB = 2**20
METHOD: Any = SimpleNamespace(params={"a": np.zeros(MIB, np.int8)}, student=SimpleNamespace(num_params=0, dim=0))


def test_a_large_keep_last_needs_no_room_for_checkpoints_that_are_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = config(keep_last=1000, checkpoint_every=10)
    assert checkpoints_kept(cfg, 25) == 3 and checkpoints_kept(config(keep_last=1, checkpoint_every=10), 25) == 2
    room = (3 + 1) * 3 * MIB + OTHER_BYTES  # those at steps 10, 20 and 25, and one that a signal leaves
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(room, 0, room))
    check_room(cfg, METHOD, tmp_path, texts=0, steps=25, parts=("export", "index"))
    with pytest.raises(UserError, match=r"checkpoints of 3 MiB, of which 5 stand at once"):
        check_room(cfg, METHOD, tmp_path, texts=0, steps=40, parts=("export", "index"))
    large: Any = SimpleNamespace(params=METHOD.params, student=SimpleNamespace(num_params=10**9, dim=10**3))
    check_room(
        cfg, large, tmp_path, texts=10**6, steps=25, parts=()
    )  # a trial, or a run whose export and index are whole
    for part in ("export", "index"):
        with pytest.raises(UserError, match="checkpoints of 3 MiB"):
            check_room(cfg, large, tmp_path, texts=10**6, steps=25, parts=(part,))


def test_an_average_of_the_parameters_stands_in_each_checkpoint() -> None:
    assert checkpoint_bytes(config(), METHOD) == 3 * MIB and checkpoint_bytes(config(average=0.99), METHOD) == 4 * MIB


def test_muons_matrices_have_one_moment() -> None:
    method: Any = SimpleNamespace(params={"kernel": np.zeros((512, 512), np.float32)})
    assert checkpoint_bytes(config(), method) == 3 * MIB
    assert checkpoint_bytes(config(optimizer="muon"), method) == 2 * MIB + 12  # and three coefficients


def test_a_later_stages_batch_is_known_before_the_first_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.sharding, "global_mesh", lambda: SimpleNamespace(size=8))
    cfg = ibkd_file.get_config()
    cfg.update({"batch_size": 64, "triplets": "t.jsonl", "teacher": "x"})
    cfg.finetune.batch_size = 36

    def check() -> None:
        check_batches(cfg, {stage.name: stage.cfg for stage in stages_of(cfg)})

    with pytest.raises(UserError, match="--config.finetune.batch_size=36 does not divide by the 8 devices"):
        check()
    cfg.finetune.batch_size, cfg.batch_size = 32, 60
    with pytest.raises(UserError, match="--config.batch_size=60 does not divide by the 8 devices"):
        check()
    cfg.batch_size = 64
    check()


def test_an_index_is_of_the_vectors_that_the_last_stage_makes() -> None:
    first, last = SimpleNamespace(), SimpleNamespace()
    run: Any = SimpleNamespace(stages=(first, last), cfg=ConfigDict({"output_dim": 100}))
    method: Any = SimpleNamespace(student=SimpleNamespace(dim=384))
    assert indexed_width(run, first, method) == 100  # type: ignore[arg-type]
    run.cfg.output_dim = 0
    assert indexed_width(run, first, method) == 384  # type: ignore[arg-type]
    method.student.dim, run.cfg.output_dim = 100, 128  # of hpd, whose last stage keeps its width
    assert indexed_width(run, last, method) == 100  # type: ignore[arg-type]


def test_an_index_of_no_texts_is_refused_before_training() -> None:
    with pytest.raises(UserError, match="index_texts=1000: this run reads no text that an index could hold"):
        check_index(config(index_texts=1000), 384, 0)
    check_index(config(index_texts=0), 384, 0)
    check_index(config(index_texts=1000), 384, 5)
