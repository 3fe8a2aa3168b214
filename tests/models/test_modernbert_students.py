"""A ModernBERT's exports, its students, and a run from a teacher of a hub's kind to a student that others load."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from commands import command, run_inside
from conftest import save_encoder, sentences
from ml_collections import ConfigDict
from modernbert_setting import make_modernbert, modernbert_tokenizer
from parity import assert_close
from simtde_setting import random_tokens
from steps import hidden_states

import jdistill
from configs import ibkd
from jdistill.core.errors import UserError
from jdistill.export import torch_int8
from jdistill.export.folder import export
from jdistill.export.onnx import runtime
from jdistill.export.targets import add_form
from jdistill.models.modernbert import GLOBAL, LOCAL
from jdistill.models.modernbert.student import as_first
from jdistill.students.transformer import make_student

TEXTS = [*sentences(6), "", " ".join(sentences(30)), "Où est la maison ?"]


@pytest.mark.parametrize("biased", [False, True])
def test_other_frameworks_encode_an_export_as_flax_does(biased: bool, tmp_path: Path) -> None:
    """export() itself compares ONNX Runtime and sentence-transformers, texts as long as the model takes among them."""
    changes = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias"), biased)
    model = make_modernbert(**changes)
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == model.config and again.max_length == 96
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    of_onnx = runtime.load_onnx_encoder(str(tmp_path / "out"))
    np.testing.assert_allclose(of_onnx.encode(TEXTS), model.encode(TEXTS), atol=1e-5)


def test_the_int8_forms_of_an_export_are_near(tmp_path: Path) -> None:
    model = make_modernbert()
    export(model, tmp_path / "out", onnx=True)
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


@pytest.mark.parametrize(
    ("which", "layers", "kinds"),
    [
        ("last", (2, 3, 4), (LOCAL, GLOBAL, LOCAL)),
        ("first", (0, 1, 2), (GLOBAL, LOCAL, LOCAL)),
        ("spread", (1, 2, 4), (LOCAL, LOCAL, LOCAL)),
    ],
)
def test_a_student_takes_whole_layers_each_of_its_kind(which: str, layers: tuple[int, ...], kinds: tuple) -> None:
    start, tokens = make_modernbert(num_layers=5), random_tokens(20)
    student = make_student(student_keys(layers=3, copy_layers=which), start, tokens)
    assert student.config == dataclasses.replace(start.config, num_layers=3, layer_types=kinds)
    for k, layer in enumerate(layers):
        taken, there = student.params[f"layer_{k}"], start.params[f"layer_{layer}"]
        np.testing.assert_array_equal(taken["up"]["kernel"], there["up"]["kernel"])
        if k:
            np.testing.assert_array_equal(taken["attention_norm"]["scale"], there["attention_norm"]["scale"])
        elif layer == 0:
            np.testing.assert_array_equal(taken["attention"]["qkv"]["kernel"], there["attention"]["qkv"]["kernel"])
    assert "attention_norm" not in student.params["layer_0"]
    for part in ("embeddings", "final_norm"):
        np.testing.assert_array_equal(*(np.asarray(x.params[part].get("scale", 0)) for x in (student, start)))
    assert np.isfinite(student.encode(TEXTS)).all()


def test_a_layer_in_the_first_place_sees_what_its_norm_gave_it() -> None:
    """Where the embeddings' norm leaves unit variance, the two differ by nothing but rounding."""
    start = make_modernbert(num_layers=3, attention_bias=True, norm_bias=True)
    second = start.params["layer_1"]
    moved = as_first(second)
    x_NxD = np.random.default_rng(0).normal(size=(50, 32)).astype(np.float32)
    unit_NxD = (x_NxD - x_NxD.mean(1, keepdims=True)) / x_NxD.std(1, keepdims=True)
    normed_NxD = unit_NxD * second["attention_norm"]["scale"] + second["attention_norm"]["bias"]

    def queries_keys_values(layer: dict, x: np.ndarray) -> np.ndarray:
        return x @ layer["attention"]["qkv"]["kernel"] + layer["attention"]["qkv"]["bias"]

    assert_close(queries_keys_values(moved, unit_NxD), queries_keys_values(second, normed_NxD), 32, 2)


def test_all_layers_are_the_start_and_random_ones_are_small() -> None:
    start, tokens = make_modernbert(), random_tokens(20)
    whole = make_student(student_keys(layers=0), start, tokens)
    ids = np.random.default_rng(0).integers(5, 300, (2, 30))
    one, other = (hidden_states(start.config, model.params, ids, ids > 0)[-1] for model in (start, whole))
    np.testing.assert_array_equal(one, other)
    random = make_student(student_keys(layers=2, copy_layers="none"), start, tokens)
    assert random.config.layer_types == (GLOBAL, LOCAL)
    assert random.params["layer_1"]["up"]["kernel"].std() == pytest.approx(0.02, rel=0.1)
    assert np.isfinite(random.encode(TEXTS)).all()


@pytest.mark.parametrize("change", [{"embedding_size": 12}, {"hidden_size": 16}])
def test_a_compact_student_is_refused_and_told_why(change: dict) -> None:
    with pytest.raises(
        UserError, match="the start is a ModernBERT, of which a student takes whole layers: set --config"
    ):
        make_student(student_keys(**change), make_modernbert(), random_tokens(20))


def test_simtde_says_that_there_is_no_compact_modernbert(tmp_path: Path) -> None:
    teacher = save_encoder(make_modernbert(), tmp_path / "teacher")
    done = run_inside(command("configs/simtde.py", tmp_path / "run", {"teacher": teacher, "text": "none.txt"}))
    assert done.returncode == 2 and "is a modernbert, which has no form with narrower ones" in done.stderr


def test_a_tokenizer_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = save_encoder(make_modernbert(), tmp_path / "teacher")
    other = modernbert_tokenizer(sentences(20))
    other.add_tokens([f"further{i}" for i in range(100)])
    other.save_pretrained(folder)
    with pytest.raises(UserError, match="the tokenizer has ids up to .*, but the embedding only .* rows"):
        jdistill.load(str(folder))


def hub_folder(folder: Path) -> Path:
    """A random ModernBertModel as such teachers are published: transformers' files, and CLS pooling beside them."""
    torch = pytest.importorskip("torch", reason="the teacher is written by transformers")
    import sentence_transformers
    import transformers

    torch.manual_seed(0)
    tokenizer = modernbert_tokenizer(sentences(300))
    sizes = dict(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=5, num_attention_heads=4)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    special |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    more = dict(intermediate_size=48, max_position_embeddings=96, local_attention=8)
    model = transformers.ModernBertModel(transformers.ModernBertConfig(**sizes, **special, **more))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, 0.0, 0.2)
    model.save_pretrained(folder / "body")
    tokenizer.save_pretrained(folder / "body")
    modules = sentence_transformers.models
    body = modules.Transformer(str(folder / "body"))
    pooling = modules.Pooling(32, pooling_mode="cls")
    sentence_transformers.SentenceTransformer(modules=[body, pooling], device="cpu").save(str(folder / "teacher"))
    return folder / "teacher"


def test_a_run_from_a_teacher_of_a_hub_ends_with_a_student_that_others_load(tmp_path: Path) -> None:
    teacher = hub_folder(tmp_path)
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(teacher), device="cpu")
    ours = jdistill.load(str(teacher))
    assert ours.pooling == "cls" and ours.config.layer_types == (GLOBAL, LOCAL, LOCAL, GLOBAL, LOCAL)
    np.testing.assert_allclose(ours.encode(TEXTS), theirs.encode(TEXTS), atol=1e-5)
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
    assert student.config.layer_types == (GLOBAL, LOCAL) and student.tokenize(TEXTS) == ours.tokenize(TEXTS)
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path / "run/export"), device="cpu")
    np.testing.assert_allclose(loaded.encode(TEXTS), student.encode(TEXTS), atol=1e-5)
