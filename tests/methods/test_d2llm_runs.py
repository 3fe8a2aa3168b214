"""Runs of D2LLM: all stages end to end, two processes that ask the judge together, a student that is no decoder."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import commands
import numpy as np
import pytest
from conftest import make_decoder, make_encoder, save_encoder
from d2llm_setting import HEAD_SUMS as SUMS
from d2llm_setting import write_pairs
from parity import assert_close

import jdistill
from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.data.sets.pairs import (
    read_pairs,
    train_and_test,
)
from jdistill.encoder.pair_scorer import load_pair_scorer
from jdistill.export.command import main as export_command
from jdistill.export.trained import load_student
from jdistill.search import answer


def test_all_stages_end_to_end_and_again_from_a_folder_that_was_stopped(tmp_path: Path) -> None:
    save_encoder(make_decoder(max_positions=256), tmp_path / "lm")
    write_pairs(tmp_path / "same.jsonl", 48, split=True)
    write_pairs(tmp_path / "answers.jsonl", 48, split=False)
    settings = {
        "teacher": tmp_path / "lm", "symmetric": tmp_path / "same.jsonl", "asymmetric": tmp_path / "answers.jsonl",
        "held_out_queries": 12, "dev_queries": 6, "hard_negatives": 3, "easy_negatives": 2, "positives": 1, "cache_dir": tmp_path / "cache",
        "batch_size": 8, "tune.batch_size": 8, "tune.max_steps": 3, "max_steps": 4, "checkpoint_every": 2, "tune.checkpoint_every": 2,
        "judge.query_tokens": 20, "judge.passage_tokens": 20, "lora.rank": 2, "tune.lora.rank": 2, "iem_size": 8, "onnx": False,
        "query_length": 20, "document_length": 20, "latency_texts": 0, "index_texts": 100, "length_buckets": 1,
    }  # fmt: skip
    arguments = commands.command("configs/d2llm.py", tmp_path / "run", settings)
    planned = commands.run_inside([*arguments, "--dry_run"])
    assert not (tmp_path / "run").exists() and re.search(r"^judge     \d+ pairs to score", planned.stdout, re.MULTILINE)
    run = commands.run_inside(arguments)
    assert run.returncode == 0, run.stderr[-3000:]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert [stage["name"] for stage in results["training"]["stages"]] == ["tune", "distil"]
    for name in ("same", "answers"):
        for row in ("student", "teacher"):
            found = results["pairs"][name][row]
            assert {"accuracy", "ap", "precision", "recall", "prior"} <= found.keys() and found["prior"] == 50
    assert results["questions"].keys() == {"answers"} and results["questions"]["answers"].keys() == {
        "cosine",
        "rescored",
    }
    assert results["dev"]["ap"].keys() == {"same", "answers"} and all(
        0 < ap <= 100 for ap in results["dev"]["ap"].values()
    )
    assert results["dev"]["questions"]["answers"].keys() == {"cosine", "rescored"}
    found = answer(tmp_path / "run", "the river", 5)
    assert len(found) == 5 and sorted(found, reverse=True) == found
    about = json.loads((tmp_path / "run" / "tune" / "adapter" / "adapter_config.json").read_text())
    assert about["r"] == 2 and about["lora_alpha"] == 64
    scorer = load_pair_scorer(str(tmp_path / "run" / "export"))
    test = train_and_test(read_pairs(str(tmp_path / "same.jsonl"), "x"), "dev", "test", 0, "x")[1]
    scores = scorer.score(test.queries, test.passages, symmetric=True)
    vectors = [scorer.encoder.encode(side) for side in (test.queries, test.passages)]
    every = scorer.every(*vectors, symmetric=True)
    assert_close(np.diag(every), scores, *SUMS)
    assert len(list((tmp_path / "cache" / "judge").iterdir())) == 2  # by instruction
    export_command(["--workdir", str(tmp_path / "run"), "--out", str(tmp_path / "again")])
    exported = load_pair_scorer(str(tmp_path / "again"))
    assert_close(exported.score(test.queries, test.passages, symmetric=True), scores, *SUMS)
    # Another run with the first one's judge: nothing is tuned, and every score is at hand.
    more = settings | {"tune.max_steps": 0, "tune.epochs": 0, "judge.adapter": tmp_path / "run" / "tune" / "adapter"}
    more |= {"student.vocabulary": "text"}  # and a student of the pairs' pieces alone
    second = commands.run_inside(commands.command("configs/d2llm.py:no_fi", tmp_path / "second", more))
    assert second.returncode == 0 and "judged pairs" not in second.stderr
    assert (
        json.loads((tmp_path / "second" / "results.json").read_text())["pairs"]["same"]["teacher"]
        == results["pairs"]["same"]["teacher"]
    )
    export_command(["--workdir", str(tmp_path / "second"), "--out", str(tmp_path / "second again")])
    smaller, once_more = (jdistill.load(str(tmp_path / place)) for place in ("second/export", "second again"))
    assert smaller.config.vocab_size < 2_200 and smaller.fingerprint() == once_more.fingerprint()
    card = (tmp_path / "run" / "export" / "README.md").read_text()
    assert "PMA" in card and "model[-1].score(" in card and "Labelled pairs: same" in card
    again = commands.run_inside(commands.command("configs/d2llm.py", tmp_path / "run", settings))
    assert again.returncode == 0 and "is complete" in again.stderr
    seal = files.read_seal(tmp_path / "run" / "index", "index")
    assert seal and "test_pairs" in seal["settings"]  # by which the index's passages are chosen
    save_encoder(make_decoder(seed=1, max_positions=256), tmp_path / "lm")
    with pytest.raises(UserError, match="the base model changed since .*distil began"):  # the adapters are another's
        load_student(tmp_path / "run")


def test_two_processes_ask_the_judge_together_and_end(tmp_path: Path) -> None:
    save_encoder(make_decoder(max_positions=256), tmp_path / "lm")
    write_pairs(tmp_path / "same.jsonl", 40, split=True)
    settings = {
        "teacher": tmp_path / "lm", "symmetric": tmp_path / "same.jsonl", "dev_queries": 6, "hard_negatives": 3, "easy_negatives": 2,
        "positives": 1, "batch_size": 8, "tune.epochs": 0.0, "max_steps": 2, "checkpoint_every": 2, "judge.query_tokens": 20,
        "judge.passage_tokens": 20, "lora.rank": 2, "iem_size": 8, "onnx": False, "query_length": 20, "document_length": 20,
        "latency_texts": 0, "index_texts": 0, "length_buckets": 1, "teacher_dtype": "float32",
    }  # fmt: skip
    script = commands.command("configs/d2llm.py", tmp_path / "two", settings | {"cache_dir": tmp_path / "cache-two"})
    two = commands.run(
        ["bash", "launch/one_host.sh", *script[3:]],
        PROCESSES="2",
        PYTHON=sys.executable,
        PORT=str(commands.free_port()),
    )
    assert two.returncode == 0, two.stderr[-3000:]
    (scores,) = (tmp_path / "cache-two" / "judge").iterdir()
    assert (scores / "part-00000.keys").stat().st_size > 0
    alone = commands.run_inside(
        commands.command("configs/d2llm.py", tmp_path / "one", settings | {"cache_dir": tmp_path / "cache-one"})
    )
    assert alone.returncode == 0, alone.stderr[-3000:]
    of_two, of_one = (json.loads((tmp_path / name / "results.json").read_text())["pairs"] for name in ("two", "one"))
    assert of_two["same"]["teacher"] == pytest.approx(of_one["same"]["teacher"], abs=1e-3)
    assert of_two["same"]["student"]["ap"] == pytest.approx(of_one["same"]["student"]["ap"], abs=1)


def test_a_student_that_is_no_decoder_is_refused_before_anything_is_mined(tmp_path: Path) -> None:
    save_encoder(make_decoder(), tmp_path / "lm")
    save_encoder(make_encoder(num_layers=1), tmp_path / "bert")
    write_pairs(tmp_path / "same.jsonl", 20, split=True)
    keys = {
        "teacher": tmp_path / "lm",
        "start": tmp_path / "bert",
        "symmetric": tmp_path / "same.jsonl",
        "cache_dir": tmp_path / "cache",
    }
    done = commands.run_inside(commands.command("configs/d2llm.py", tmp_path / "run", keys))
    assert done.returncode == 2 and "bert: the student of a judge is a decoder" in done.stderr
    assert not (tmp_path / "cache").exists()
