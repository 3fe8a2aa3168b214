"""A run from a decoder as its publisher lays it on the Hub to a student that others load, of each kind of layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import command, run_inside
from conftest import sentences
from decoder_setting import PUBLISHED, TEXTS, check_against_sentence_transformers, write_published

import jdistill

pytest.importorskip("sentence_transformers")
PLACES = {"e5-mistral": "last", "qwen3-embedding": "first", "embeddinggemma": "spread"}  # layers of the student


@pytest.mark.parametrize("name", PUBLISHED)
def test_from_a_teacher_of_the_hub_to_a_student_that_others_load(name: str, tmp_path: Path) -> None:
    folder = write_published(name, tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(80)))
    keys: dict[str, object] = {
        "teacher": folder, "start": "", "text": tmp_path / "text.txt", "text_column": "", "triplets": "", "senteval": "",
        "student.layers": 2, "student.copy_layers": PLACES[name], "batch_size": 16, "max_steps": 6, "checkpoint_every": 6, "log_every": 1,
        "learning_rate": 1e-3, "held_out": 8, "length_buckets": 1, "index_texts": 0, "latency_texts": 0, "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    if name == "embeddinggemma":
        keys["student.attention"] = "bidirectional"
    done = run_inside(command("configs/ibkd.py:mse", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run/distil/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 6 and losses[-1] < losses[0], losses
    student, teacher = jdistill.load(str(tmp_path / "run/export")), jdistill.load(str(folder))
    assert student.config.num_layers == 2 and student.config.model_type == teacher.config.model_type
    assert student.prompts == teacher.prompts and student.tokenize(TEXTS) == teacher.tokenize(TEXTS)
    check_against_sentence_transformers(student, tmp_path / "run/export", TEXTS)
