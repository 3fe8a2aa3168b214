"""A run of two stages: each in its folder, stopped in the second, and what is known before the first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import commands
import jax
import numpy as np
import pytest
from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from ml_collections import ConfigDict
from stopped import run_to

import jdistill
from configs import ibkd as config_file
from jdistill.data.sets.triplets import read_triplets
from jdistill.export.trained import last_stage, load_student, measured_instead
from jdistill.feeds.stage import Start
from jdistill.run.stages import open_stage, prepare
from jdistill.train.checkpoint import Checkpoints
from jdistill.train.method import Method


def command(folder: Path, workdir: str, *more: str) -> list[str]:
    settings: dict[str, object] = {
        "teacher": folder / "teacher",
        "start": "",
        "text": folder / "text.txt",
        "text_column": "",
        "triplets": folder / "triplets.jsonl",
        "cache_dir": folder / "cache",
        "max_steps": 8,
        "batch_size": 8,
        "checkpoint_every": 4,
        "log_every": 4,
        "held_out": 20,
        "length_buckets": 1,
        "latency_texts": 0,
        "index_texts": 0,
        "onnx": False,
        "output_dim": 6,
        "student.layers": 2,
        "student.dropout": 0.1,
        "finetune.batch_size": 8,
        "finetune.max_steps": 40,
        "finetune.checkpoint_every": 5,
        "finetune.learning_rate": 1e-3,
    }
    return [*commands.command("configs/ibkd.py", folder / workdir, settings), *more]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages")
    save_encoder(make_encoder(), folder / "teacher")
    texts = sentences(240)
    (folder / "text.txt").write_text("\n".join(texts) + "\n")
    rows = [
        {"anchor": a, "positive": b, "negatives": [c, d][: 1 + i % 2]}
        for i, (a, b, c, d) in enumerate(zip(*[iter(texts)] * 4, strict=True))
    ]
    (folder / "triplets.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def final_state(workdir: Path, stage: str) -> list[np.ndarray]:
    checkpoints = Checkpoints(workdir / stage / "checkpoints", 100)
    _, state, _ = checkpoints.restore(None)
    checkpoints.close()
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def test_two_stages_and_a_stop_in_the_second(folder: Path) -> None:
    done = run_inside(command(folder, "whole"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "30 of 60 triplets have fewer than 2 negatives" in done.stderr
    whole = folder / "whole"
    training = json.loads((whole / "results.json").read_text())["training"]
    assert [(s["name"], s["steps"], s["sentences"]) for s in training["stages"]] == [
        ("distil", 8, 64),
        ("finetune", 40, 40 * 8 * 4),
    ]
    assert jdistill.load(str(whole / "export")).dim == 6
    assert load_student(whole).dim == 6 and load_student(whole, "distil").dim == 32
    os.utime(
        whole / "distil" / "student" / "modules.json"
    )  # as a copy leaves it, or the same command before its second stage
    assert last_stage(whole) == "finetune"
    assert measured_instead(whole, "finetune", 40, False) == measured_instead(whole, "finetune", 40, True) == ""
    assert (
        measured_instead(whole, "finetune", 20, False) == "its checkpoint of step 40"
    )  # such as after the damage of that
    assert measured_instead(whole, "distil", 8, False) == "the student of its stage finetune"
    lines = [json.loads(line) for line in (whole / "finetune" / "metrics.jsonl").read_text().splitlines()]
    assert any("hsic" in line and "gram_sentence_rank" in line for line in lines)
    assert not any("dev/score" in line for line in lines)  # agreement with the teacher does not choose in this stage

    run_to(10, command(folder, "stopped"), "finetune")
    again = run_inside(command(folder, "stopped"))
    assert again.returncode == 0 and "resuming finetune at step 10 of 40" in again.stderr, again.stderr[-3000:]
    for stage in ("distil", "finetune"):
        for one, other in zip(final_state(whole, stage), final_state(folder / "stopped", stage), strict=True):
            np.testing.assert_array_equal(one, other)


def test_bad_triplets_are_known_before_the_first_stage(folder: Path) -> None:
    (folder / "bad.jsonl").write_text('{"anchor": "a", "negative": "b"}\n')
    done = run_inside(command(folder, "bad", f"--config.triplets={folder / 'bad.jsonl'}"))
    assert done.returncode == 2 and "line 1: the columns anchor (or query) and positive are needed" in done.stderr
    assert not (folder / "bad" / "distil").exists()


def test_triplets_alone_need_neither_a_teacher_nor_text(folder: Path) -> None:
    changed = [
        f"--config.{key}"
        for key in ("teacher=", f"start={folder / 'teacher'}", "text=", "finetune.max_steps=2", "index_texts=1000")
    ]
    arguments = command(folder, "alone", *changed)
    arguments[arguments.index("configs/ibkd.py")] += ":supervised"
    done = run_inside(arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert jdistill.load(str(folder / "alone" / "export")).dim == 6
    rows = [json.loads(line) for line in (folder / "triplets.jsonl").read_text().splitlines()]
    indexed = (folder / "alone" / "index" / "texts.jsonl").read_text().splitlines()
    assert set(map(json.loads, indexed)) == {text for row in rows for text in (row["positive"], *row["negatives"])}
    assert "% of the start's" in done.stderr and "of the teacher's" not in done.stderr
    results = json.loads((folder / "alone" / "results.json").read_text())
    assert results["teacher"]["name"] == str(folder / "teacher") and "texts" not in results["training"]
    assert "of its start&#39;s" in (folder / "alone" / "report.html").read_text()

    done = run_inside(command(folder, "no_text", "--config.text="))
    assert done.returncode == 2 and "--config.text is empty" in done.stderr


def test_what_is_fitted_in_the_second_stage_sees_triplets_and_corpus_alike(folder: Path) -> None:
    cfg = config_file.get_config()
    keys = {"teacher": str(folder / "teacher"), "start": "", "text": str(folder / "text.txt"), "text_column": ""}
    keys |= {"triplets": str(folder / "triplets.jsonl"), "cache_dir": str(folder / "cache"), "held_out": 20}
    cfg.update_from_flattened_dict(keys | {"finetune.batch_size": 8, "batch_size": 8})
    run = prepare(cfg)
    given: list[Start] = []

    def build(cfg: ConfigDict, start: Start) -> Method:
        given.append(start)
        return run.stages[0].build(cfg, start)

    open_stage(replace(run.stages[1], build=build), run.feeds[1], run.shared.start, True, made_up=True)
    tokens = given[0].tokens
    half = len(tokens.lengths) // 2
    triplets = read_triplets(cfg.triplets)
    passages = set(triplets.positives) | {text for negatives in triplets.negatives for text in negatives}
    assert half == len(passages)

    def ids_of(texts: Iterable[str]) -> set[tuple[int, ...]]:
        return set(map(tuple, run.shared.start.tokenize(list(texts))))

    first, second = (set(map(tuple, tokens.lists(rows))) for rows in np.split(np.arange(2 * half), 2))
    assert first == ids_of(passages)
    assert len(second) == half and second <= ids_of(run.shared.corpus.train) and second != first
