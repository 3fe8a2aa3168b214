"""Labelled pairs parted into those to train on, dev and test pairs: parts that tell nothing are refused or said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs import d2llm
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.feeds.judged_splits import split_files, split_pairs


def test_test_pairs_of_one_class_are_refused(tmp_path: Path) -> None:
    rows = [("train", 1), ("train", 0), ("test", 1), ("test", 1), ("test", -1)]
    cells = [{"split": split, "sentence1": f"a {i}", "sentence2": "b", "label": n} for i, (split, n) in enumerate(rows)]
    cfg = d2llm.get_config()
    cfg.symmetric, cfg.train_split, cfg.test_split = str(tmp_path / "same.jsonl"), "train", "test"
    cfg.dev_queries = 0

    def write(*labels: int) -> None:
        of = [*cells, *({"split": "test", "sentence1": "c", "sentence2": "d", "label": label} for label in labels)]
        (tmp_path / "same.jsonl").write_text("".join(json.dumps(row) + "\n" for row in of))

    write()
    with pytest.raises(UserError, match="same.jsonl: all 2 test pairs .* the same label.* apart; 1 rows labelled -1, "):
        split_pairs(cfg, "symmetric", set())
    write(0)
    assert len(split_pairs(cfg, "symmetric", set())[2]) == 3
    cfg.test_pairs = 2
    with pytest.raises(UserError, match="all 2 test pairs .*; --config.test_pairs=2 takes the first of 3"):
        split_pairs(cfg, "symmetric", set())


def test_dev_pairs_of_one_class_choose_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [("train", f"a {i}", 1) for i in range(6)] + [("test", "x", 1), ("test", "y", 0)]
    cells = [{"split": split, "sentence1": text, "sentence2": "b", "label": n} for split, text, n in rows]
    (tmp_path / "same.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cells))
    cfg = d2llm.get_config()
    cfg.symmetric, cfg.train_split, cfg.test_split = str(tmp_path / "same.jsonl"), "train", "test"
    cfg.dev_queries = 2
    log.addHandler(caplog.handler)
    train, dev, *_ = split_pairs(cfg, "symmetric", set())
    log.removeHandler(caplog.handler)
    assert len(train) == 4 and len(dev) == 0 and "all 2 dev pairs have the same label" in caplog.text


def test_pairs_that_all_stand_in_evaluation_sets_are_said_to(tmp_path: Path) -> None:
    rows = [("train", "x", 1), ("train", "y", 0), ("test", "x", 1), ("test", "y", 0)]
    cells = [{"split": split, "sentence1": text, "sentence2": "b", "label": n} for split, text, n in rows]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in cells))
    cfg = d2llm.get_config()
    cfg.symmetric, cfg.train_split, cfg.test_split = str(tmp_path / "all.jsonl"), "train", "test"
    with pytest.raises(UserError, match="no pair is left to train on: the texts or queries of all 2 stand in"):
        split_pairs(cfg, "symmetric", set())


def test_what_one_file_keeps_apart_is_not_trained_on_from_the_other(tmp_path: Path) -> None:
    def write(name: str, rows: list[tuple[str, str, str, int]]) -> str:
        cells = [{"split": split, "sentence1": left, "sentence2": right, "label": n} for split, left, right, n in rows]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in cells))
        return str(tmp_path / name)

    tested = [("test", "q", "p", 1), ("test", "r", "s", 0)]
    cfg = d2llm.get_config()
    cfg.train_split, cfg.test_split, cfg.dev_queries = "train", "test", 0
    cfg.asymmetric = write("a.jsonl", [("train", f"k {i}", "l", i % 2) for i in range(4)] + tested)
    rows = [("train", "q", "p", 1), ("train", "Q ", "other", 0), ("train", "s", "r", 0), ("train", "x", "y", 1)]
    cfg.symmetric = write("s.jsonl", [*rows, ("test", "u", "v", 1), ("test", "w", "v", 0)])
    of_branch = split_files(cfg, set())
    train, _, test, removed = of_branch["symmetric"]
    assert train.queries == ["x"] and len(test) == 2 and removed == 3
    assert len(of_branch["asymmetric"][0]) == 4 and of_branch["asymmetric"][3] == 0
    assert len(split_pairs(cfg, "symmetric", set())[0]) == 4  # its own file keeps none of them apart
