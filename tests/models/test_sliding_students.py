"""Students of decoders whose layers slide: which layers they are, how far these see, and their exports."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from decoder_setting import TEXTS, write_published
from ml_collections import ConfigDict
from simtde_setting import random_tokens

import jdistill
from configs import ibkd
from jdistill.core.errors import UserError
from jdistill.export.folder import export
from jdistill.students.transformer import make_student


def student_keys(**changes: object) -> ConfigDict:
    cfg = ibkd.get_config()
    cfg.student.update(changes)
    return cfg


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> jdistill.Encoder:
    return jdistill.load(str(write_published("embeddinggemma", tmp_path_factory.mktemp("gemma"))))


@pytest.mark.parametrize(("which", "taken"), [("last", (2, 3)), ("first", (0, 1)), ("spread", (1, 3))])
def test_a_students_layers_see_as_far_as_the_starts(
    which: str, taken: tuple[int, ...], gemma: Any, tmp_path: Path
) -> None:
    keys = student_keys(layers=2, copy_layers=which, attention="bidirectional")
    student = make_student(keys, gemma, random_tokens(20))
    assert [student.config.window(i) for i in range(2)] == [gemma.config.window(layer) for layer in taken]
    for i, layer in enumerate(taken):
        jax.tree.map(np.testing.assert_array_equal, student.params[f"layer_{i}"], gemma.params[f"layer_{layer}"])
    assert student.config.sliding == (() if which == "spread" else (True, False)) and student.dense == ()
    assert max(export(student, tmp_path / "out").values()) < 2e-6
    assert jdistill.load(str(tmp_path / "out")).config == student.config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"embedding_size": 12, "attention": "bidirectional"},
            "the start is a decoder, of which a student takes whole",
        ),
        ({"hidden_size": 16, "attention": "bidirectional"}, "the start is a decoder, of which a student takes whole"),
        (
            {"copy_layers": "none", "attention": "bidirectional"},
            "copy_layers=none: a decoder's layers start as its own",
        ),
        ({}, "student.attention=causal: the start's tokens see those behind them too"),
    ],
)
def test_what_a_student_of_gemma_cannot_be(change: dict, message: str, gemma: Any) -> None:
    with pytest.raises(UserError, match=message):
        make_student(student_keys(layers=2, **change), gemma, random_tokens(20))


@pytest.mark.parametrize("name", ["e5-mistral", "qwen3-embedding"])
def test_a_student_that_reads_both_ways_slides_in_other_frameworks_too(name: str, tmp_path: Path) -> None:
    window = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
    folder = write_published(name, tmp_path / "teacher")
    path = folder / "config.json"
    kept = {key: value for key, value in json.loads(path.read_text()).items() if key != "layer_types"}
    path.write_text(json.dumps(kept | (window if name == "qwen3-embedding" else {})))
    start = jdistill.load(str(folder))
    assert start.config.sliding == ((True,) * 4 if name == "e5-mistral" else (False, False, True, True))
    student = make_student(student_keys(layers=3, attention="bidirectional"), start, random_tokens(20))
    checks = export(student, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 2e-6
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == student.config and not again.config.causal
    wide = dataclasses.replace(student, config=dataclasses.replace(student.config, sliding=(), sliding_window=0))
    assert np.abs(wide.encode(TEXTS) - student.encode(TEXTS)).max() > 1e-3
