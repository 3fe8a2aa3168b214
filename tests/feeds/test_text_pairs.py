"""Parallel text: a translation is answered as its source, in a run that learns a language made up by turning words round."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
from commands import run_inside
from conftest import make_encoder, save_encoder, sentences
from train_setting import final_weights

from configs import ibkd
from jdistill.core.errors import UserError
from jdistill.data.text.holdout import comparable
from jdistill.evals.translations import PairVectors, translation_figures
from jdistill.run.stages import prepare
from jdistill.train.dataset import Data

CHANCE = 100 / 60  # percent, of 60 held-out pairs


def turned(text: str) -> str:
    """A text in the made-up language: each word from its end."""
    return " ".join(word[::-1] for word in text.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a teacher, text.txt, and pairs.tsv."""
    folder = tmp_path_factory.mktemp("pairs")
    save_encoder(make_encoder(num_layers=1), folder / "teacher")
    texts = [text for text in sentences(3000, seed=3) if len(text.split()) <= 6][:720]
    (folder / "text.txt").write_text("\n".join(texts[600:]) + "\n")
    rows = [f"{text}\t{turned(text)}\n" for text in texts[:660]]  # 60 of the sources in text.txt too
    (folder / "pairs.tsv").write_text("source\ttranslation\n" + "".join(rows))
    return folder


def settings(folder: Path, **keys: Any) -> dict[str, Any]:
    return {
        "triplets": "", "start": "", "teacher": folder / "teacher", "text": folder / "text.txt", "text_column": "",
        "text_pairs": folder / "pairs.tsv", "cache_dir": folder / "cache", "student.layers": 0, "student.dropout": 0.0,
        "epochs": 0.0, "max_steps": 300, "batch_size": 32, "checkpoint_every": 100, "held_out": 60, "latency_texts": 0,
        "index_texts": 0, "onnx": False, "learning_rate": 5e-3, "output_dim": 0, "dtype": "float32", "teacher_dtype": "float32",
    } | keys  # fmt: skip


def run(folder: Path, workdir: str, **keys: Any) -> subprocess.CompletedProcess:
    return run_inside(commands.command("configs/ibkd.py:mse", folder / workdir, settings(folder, **keys)), folder)


def prepared(folder: Path, **keys: Any):
    cfg = ibkd.get_config("mse")
    own = {name: str(value) if isinstance(value, Path) else value for name, value in settings(folder, **keys).items()}
    cfg.update_from_flattened_dict(own)
    return cfg, prepare(cfg)


@pytest.mark.parametrize("keys", [{}, {"packed": False}, {"text": ""}])
def test_a_translation_is_answered_as_its_source(folder: Path, keys: dict[str, Any]) -> None:
    cfg, ready = prepared(folder, **keys)
    corpus, teacher = ready.shared.corpus, ready.shared.teacher
    train, asked = list(corpus.train), list(corpus.asked_texts)
    translated = [text for text, question in zip(train, asked, strict=True) if text != question]
    assert len(translated) > 500 and all(turned(t) == q for t, q in zip(train, asked, strict=True) if t != q)
    own = [text for text, question in zip(train, asked, strict=True) if text == question]
    assert len(own) == len(set(own)) and {turned(text) for text in translated} <= set(own)
    of = {text: vector for text, vector in zip(own, teacher.cache_free_answer(own), strict=True)} if False else None
    assert of is None
    rows = np.arange(len(train))
    vectors = ready.shared.embeddings.train(rows)
    first_row = {text: row for row, text in reversed(list(enumerate(train)))}
    for row, question in enumerate(asked):
        np.testing.assert_array_equal(vectors[row], vectors[first_row[question]])
    some = [row for row in range(len(train)) if train[row] != asked[row]][:40]
    np.testing.assert_allclose(vectors[some], teacher.answer([asked[row] for row in some]), atol=1e-5)
    tokens, data = ready.feeds[0].batches(cfg, ready.shared.start)
    _, batch_rows = data.batches.at(3)[0], data.batches.at(3)[1]
    batch = data.batch(3)["teacher"]
    np.testing.assert_array_equal(batch.reshape(-1, batch.shape[-1]), vectors[np.ravel(batch_rows)])
    assert tokens.lists(np.array(some)) == ready.shared.start.tokenize([train[row] for row in some])


def test_what_is_held_out_is_trained_on_nowhere(folder: Path) -> None:
    _, ready = prepared(folder)
    corpus = ready.shared.corpus
    pairs = [pair for pair, _ in corpus.held_out_pairs]
    assert len(pairs) == 60 and corpus.held_out and all(pair.translation == turned(pair.source) for pair in pairs)
    apart = {text for pair in pairs for text in (pair.source, pair.translation)} | set(corpus.held_out)
    assert not apart & {*corpus.train, *corpus.asked_texts}
    assert not set(corpus.held_out) & {pair.source for pair in pairs}


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """results.json of a run with pairs."""
    done = run(folder, "run")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "run" / "results.json").read_text())


def test_a_student_learns_the_language_of_the_translations(folder: Path, whole: dict[str, Any]) -> None:
    of = whole["translations"]["translation"]
    without = run(folder, "without", loss__unused=0) if False else None
    assert without is None
    assert of["pairs"] == 60
    print(of)
    both = (of["source_to_translation"], of["translation_to_source"])
    assert min(both) > 20 * CHANCE and of["spearman"] > 60
