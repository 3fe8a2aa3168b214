"""Which dev sets choose checkpoints: one that a method's own dev rows choose in the place of is told of before anything is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from conftest import make_encoder

from configs import bilstm_sra_task as task_file
from configs import d2llm as d2llm_file
from configs import ibkd as ibkd_file
from jdistill.core.errors import UserError
from jdistill.data.sets.beir import write_collection
from jdistill.data.sets.candidates import Candidates
from jdistill.data.sets.pairs import Pairs
from jdistill.data.sets.tasks import Split, Task
from jdistill.feeds.dev_score import DEV_SETS, dev_sets_digest
from jdistill.feeds.evaluation_sets import evaluation_texts
from jdistill.feeds.judge_tuning import TuningFeed
from jdistill.feeds.judged import JudgedPairs, JudgedSet
from jdistill.feeds.stage import tell_unread_sets
from jdistill.feeds.task import TaskFeed
from jdistill.feeds.tokens import tell_cut_lengths
from jdistill.models.interaction import BRANCHES
from jdistill.run.stages import prepare, stages_of
from jdistill.train.origins import OF_DEV_SETS


@pytest.mark.parametrize(
    ("config_file", "keys", "told"),
    [
        (d2llm_file, {"symmetric": "pairs.jsonl"}, "--config.method=d2llm is that of --config.dev_queries"),
        (
            task_file,
            {"student": "scratch", "task": "sst2", "task_dir": "tasks"},
            "--config.method=classify is that of --config.task",
        ),
        (ibkd_file, {"triplets": "triplets.jsonl"}, ""),
        (ibkd_file, {"triplets": ""}, ""),
    ],
    ids=["judged", "task", "triplets", "texts"],
)
def test_a_dev_set_that_chooses_no_checkpoint_is_told(
    config_file: object, keys: dict[str, str], told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = config_file.get_config()  # type: ignore[attr-defined]
    cfg.update(keys | {"dev_pairs": "dev.csv", "dev_retrieval": "mine"})
    cfg.teacher = cfg.start = str(tmp_path / "none")
    with pytest.raises(UserError, match="none"):
        prepare(cfg)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(lines) == (2 if told else 0) and all(told in line for line in lines)
    if told:
        assert lines[0].startswith("WARNING: --config.dev_pairs=dev.csv chooses no checkpoint: the dev score of")
        assert (
            "scored on its pairs" in lines[0]
            and "--config.dev_retrieval=mine" in lines[1]
            and "--config.beir" in lines[1]
        )


def test_what_dev_sets_hold_is_known_by_content(tmp_path: Path) -> None:
    cfg = ibkd_file.get_config()
    assert not dev_sets_digest(cfg, DEV_SETS)
    cfg.dev_pairs, cfg.dev_retrieval = str(tmp_path / "dev.csv"), str(tmp_path / "mine")
    pairs = "sentence1,sentence2,score\na bird,a robin,4\na stone,a bridge,{}\n"

    def found(score: str = "1", grade: int = 1, text: str = "a robin sings", keys: tuple[str, ...] = DEV_SETS) -> str:
        (tmp_path / "dev.csv").write_text(pairs.format(score))
        write_collection(tmp_path / "mine", {"d": text, "e": "a stone"}, {"q": "who sings"}, {"q": {"d": grade}})
        return dev_sets_digest(cfg, keys)

    first = found()
    assert first == found("1.0")  # the same number
    assert len({first, found("2"), found(grade=2), found(text="a robin"), found(keys=("dev_pairs",))}) == 5
    assert found("2", keys=("dev_retrieval",)) == found(keys=("dev_retrieval",))
    assert not found(keys=("dev_queries",))


def test_of_a_folder_of_dev_pairs_every_file_is_read(tmp_path: Path) -> None:
    cfg = ibkd_file.get_config()
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\na bird,a robin,4\na stone,a bridge,1\n")
    cfg.dev_pairs = str(tmp_path / "a.csv")
    of_file = dev_sets_digest(cfg, ("dev_pairs",))
    cfg.dev_pairs = str(tmp_path)
    assert dev_sets_digest(cfg, ("dev_pairs",)) == of_file  # the same pairs
    (tmp_path / "b.tsv").write_text("sentence1\tsentence2\tscore\na leaf\ta tree\t4\na bell\ta tower\t1\n")
    assert dev_sets_digest(cfg, ("dev_pairs",)) != of_file
    sides = ["a bird", "a stone", "a robin", "a bridge", "a leaf", "a bell", "a tree", "a tower"]
    assert evaluation_texts(cfg) == sides  # none of which is trained on


@pytest.mark.parametrize("config_file", [d2llm_file, task_file], ids=["judged", "task"])
def test_text_that_a_method_does_not_read_is_told(
    config_file: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cfg = config_file.get_config()  # type: ignore[attr-defined]
    files = (
        {"symmetric": "pairs.jsonl"}
        if config_file is d2llm_file
        else {"student": "scratch", "task": "sst2", "task_dir": "t"}
    )
    cfg.update(files | {"text": "passages.txt"})
    cfg.teacher = cfg.start = str(tmp_path / "none")
    with pytest.raises(UserError, match="none"):
        prepare(cfg)
    assert f"--config.text=passages.txt is not read: --config.method={cfg.method} reads files of its own" in caplog.text


def test_topics_that_no_batch_has_are_told(caplog: pytest.LogCaptureFixture) -> None:
    for variant, told in (("supervised", True), ("mse", False)):
        caplog.clear()
        cfg = ibkd_file.get_config(variant)
        cfg.update({"topics": 4, "text": "passages.txt", "triplets": "t.jsonl", "teacher": "", "start": "x"})
        tell_unread_sets(cfg, stages_of(cfg))
        assert ("--config.topics=4 is not read: batches of one topic" in caplog.text) == told


def test_dev_rows_of_a_task_and_of_pairs_are_known_by_content() -> None:
    split = Split(["a", "b"], None, np.array([0, 1], np.int32))
    task = Task("mine", ("0", "1"), split, split, None)
    turned = replace(task, dev=replace(split, labels=split.labels[::-1].copy()))
    of_task, of_turned, of_train = (
        TaskFeed(cast(Any, None), each, each.train).origins()[OF_DEV_SETS]
        for each in (task, turned, replace(task, train=turned.dev))
    )
    assert of_task == of_train != of_turned
    pairs = Pairs(["a", "b"], ["c", "d"], [True, False], ["", ""])
    nothing = Candidates([], [], np.zeros((0, 1), np.int64), (1, 0, 0))

    def of_pairs(dev: Pairs) -> dict[str, str]:
        judged = JudgedPairs((JudgedSet("asked", BRANCHES[1], nothing, pairs, dev, pairs),), {})
        return TuningFeed(cast(Any, SimpleNamespace(teacher=SimpleNamespace(encoder=None))), judged).origins()

    first, second = (of_pairs(replace(pairs, positive=list(labels)))[OF_DEV_SETS] for labels in ((1, 0), (0, 1)))
    assert first != second and OF_DEV_SETS not in of_pairs(pairs.where([False, False]))


def test_a_length_of_a_role_beyond_the_student_s_is_told(caplog: pytest.LogCaptureFixture) -> None:
    cfg = d2llm_file.get_config()
    cfg.query_length, cfg.document_length = 64, 256
    tell_cut_lengths(cfg, replace(make_encoder(), max_length=64))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "--config.document_length=256: the student reads 64 tokens of a text" in told[0]
