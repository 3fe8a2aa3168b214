"""A NomicBERT's exports, its students, and a run from a published folder to a student that others load."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import command, run_inside
from conftest import save_encoder, sentences
from ml_collections import ConfigDict
from nomicbert_setting import PUBLISHED, make_nomicbert
from simtde_setting import random_tokens
from steps import hidden_states

import jdistill
from configs import ibkd
from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.encoder.encoder import Encoder
from jdistill.export import torch_int8
from jdistill.export.folder import export
from jdistill.export.onnx import runtime
from jdistill.export.targets import add_form
from jdistill.students.transformer import make_student

TEXTS = [*sentences(6), "", " ".join(sentences(30)), "Où est la maison ?"]


def test_other_frameworks_encode_an_export_as_flax_does(tmp_path: Path) -> None:
    """export() itself compares ONNX Runtime and sentence-transformers, texts as long as the model takes among them."""
    model = make_nomicbert()
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == model.config and again.max_length == 96
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    of_onnx = runtime.load_onnx_encoder(str(tmp_path / "out"))
    np.testing.assert_allclose(of_onnx.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    add_form(model, tmp_path / "out", "onnx-int8")
    torch_int8.save_int8_folder(model, tmp_path / "out", tmp_path / "out" / "torch_int8", sentences(20))
    sentence_transformers = pytest.importorskip("sentence_transformers")
    for small in (
        runtime.load_onnx_encoder(str(tmp_path / "out"), "onnx/model_quint8_avx2.onnx"),
        sentence_transformers.SentenceTransformer(
            str(tmp_path / "out" / "torch_int8"), device="cpu", trust_remote_code=True
        ),
    ):
        assert (small.encode(TEXTS) * model.encode(TEXTS)).sum(1).mean() > 0.95


def student_keys(**changes: object) -> ConfigDict:
    cfg = ibkd.get_config()
    cfg.student.update(changes)
    return cfg


@pytest.mark.parametrize(("which", "layers"), [("last", (2, 3)), ("first", (0, 1)), ("spread", (1, 3))])
def test_a_student_takes_whole_layers(which: str, layers: tuple[int, int]) -> None:
    start, tokens = make_nomicbert(), random_tokens(20)
    student = make_student(student_keys(layers=2, copy_layers=which), start, tokens)
    assert student.config == dataclasses.replace(start.config, num_layers=2)
    for k, layer in enumerate(layers):
        taken, there = student.params[f"layer_{k}"], start.params[f"layer_{layer}"]
        np.testing.assert_array_equal(taken["gate"]["kernel"], there["gate"]["kernel"])
    word, same = (model.params["embeddings"]["word"]["embedding"] for model in (student, start))
    np.testing.assert_array_equal(word, same)
    assert np.isfinite(student.encode(TEXTS)).all()


def test_all_layers_are_the_start_and_random_ones_are_small() -> None:
    start, tokens = make_nomicbert(), random_tokens(20)
    whole = make_student(student_keys(layers=0), start, tokens)
    ids = np.random.default_rng(0).integers(5, 300, (2, 30))
    first, second = (hidden_states(start.config, model.params, ids, ids > 0)[-1] for model in (start, whole))
    np.testing.assert_array_equal(first, second)
    random = make_student(student_keys(copy_layers="none"), start, tokens)
    assert random.params["layer_3"]["gate"]["kernel"].std() == pytest.approx(0.02, rel=0.1)
    assert np.isfinite(random.encode(TEXTS)).all()


@pytest.mark.parametrize("change", [{"embedding_size": 12}, {"hidden_size": 16}])
def test_a_compact_student_is_refused_and_told_why(change: dict) -> None:
    with pytest.raises(
        UserError, match="the start is a NomicBERT, of which a student takes whole layers: set --config"
    ):
        make_student(student_keys(**change), make_nomicbert(), random_tokens(20))


def test_simtde_says_that_there_is_no_compact_nomicbert(tmp_path: Path) -> None:
    teacher = save_encoder(make_nomicbert(), tmp_path / "teacher")
    done = run_inside(command("configs/simtde.py", tmp_path / "run", {"teacher": teacher, "text": "none.txt"}))
    assert done.returncode == 2 and "is a nomic_bert, which has no form with narrower ones" in done.stderr


def test_a_table_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = save_encoder(make_nomicbert(vocab_size=30000), tmp_path / "teacher")
    with pytest.raises(UserError, match="the tokenizer has ids up to 30521, but the embedding only 30000 rows"):
        jdistill.load(str(folder))


def published_folder(folder: Path) -> Path:
    """A random NomicBERT as its authors publish theirs: GPT-2's keys, and code named that lies elsewhere."""
    model = make_nomicbert(num_layers=4)
    save_encoder(model, folder)
    write_json(folder / "config.json", PUBLISHED)
    return folder


def by_transformers(folder: Path, encoder: Encoder) -> np.ndarray:
    """The texts' vectors by transformers' class, told the sizes by its own keys: it does not know the published ones."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    import transformers

    sizes: dict[str, Any] = dict(vocab_size=30528, hidden_size=32, num_hidden_layers=4, num_attention_heads=4)
    config = transformers.NomicBertConfig(**sizes, intermediate_size=48, max_position_embeddings=96)
    model = transformers.NomicBertModel.from_pretrained(folder, config=config).eval()
    tokens = encoder.tokenizer(TEXTS, padding=True, truncation=True, max_length=96, return_tensors="pt")
    with torch.no_grad():
        states, mask = model(**tokens).last_hidden_state, tokens["attention_mask"][..., None]
        vectors = (states * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(vectors).numpy()


def test_a_run_from_a_published_folder_ends_with_a_student_that_others_load(tmp_path: Path) -> None:
    teacher = published_folder(tmp_path / "teacher")
    ours = jdistill.load(str(teacher))
    np.testing.assert_allclose(ours.encode(TEXTS), by_transformers(teacher, ours), atol=1e-5)
    (tmp_path / "text.txt").write_text("\n".join(sentences(300)))
    keys: dict[str, object] = {
        "teacher": teacher, "start": "", "text": tmp_path / "text.txt", "text_column": "", "triplets": "",
        "senteval": "", "student.layers": 2, "batch_size": 32, "max_steps": 20, "checkpoint_every": 10, "log_every": 1,
        "learning_rate": 1e-3, "length_buckets": 1, "index_texts": 0, "latency_texts": 0,
        "cache_dir": tmp_path / "cache",
    }  # fmt: skip
    done = run_inside(command("configs/ibkd.py", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run/distil/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 20 and np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5]), losses
    checks = json.loads((tmp_path / "run/results.json").read_text())["export_max_abs_difference"]
    assert set(checks) >= {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    student = jdistill.load(str(tmp_path / "run/export"))
    assert student.config.model_type == "nomic_bert" and student.config.num_layers == 2
    sentence_transformers = pytest.importorskip("sentence_transformers")
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path / "run/export"), device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS), student.encode(TEXTS), atol=1e-5)
