"""Classifiers: their scores and equations, from scratch, by a teacher's logits and on a distilled student."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import commands
import jax
import numpy as np
import pytest
from bilstm_setting import flavour
from conftest import make_encoder, save_encoder, sentences
from parity import assert_close
from safetensors.numpy import load_file
from simtde_setting import random_tokens
from task_setting import senteval

from configs import bilstm_sra_task
from jdistill.core.errors import UserError
from jdistill.data.sets.tasks import Split, Task
from jdistill.encoder.classifier import Classifier, load_classifier, save_head
from jdistill.evals.classify import classification_scores
from jdistill.export import command as exporter
from jdistill.export.folder import export
from jdistill.feeds.stage import Start
from jdistill.feeds.task import TaskFeed, read_rows, teacher_logits
from jdistill.feeds.tokens import cache_folder
from jdistill.methods import METHODS
from jdistill.models import classifier_head
from jdistill.models.classifier_head import random_head
from jdistill.students.bilstm import make_bilstm, make_tokenizer


def test_scores_by_counting() -> None:
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    found = classification_scores(labels, predicted, ("accuracy", "f1"))
    assert found["accuracy"] == pytest.approx(100 * (labels == predicted).mean())
    hits = sum(a == b == 1 for a, b in zip(labels, predicted, strict=True))
    precision, recall = hits / sum(predicted == 1), hits / sum(labels == 1)
    assert found["f1"] == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert classification_scores(labels, np.zeros(200, int), ("f1",))["f1"] == 0


@pytest.mark.parametrize("pairs", [False, True])
def test_a_classifier_by_its_documented_reader(tmp_path: Path, pairs: bool) -> None:
    encoder = make_encoder()
    rng = np.random.default_rng(1)
    head = random_head(encoder.dim, 2 if pairs else 1, 16, 3, rng)
    model = Classifier(encoder, head, ("a", "b", "c"), pairs)
    export(encoder, tmp_path / "out")
    save_head(model, tmp_path / "out")
    texts, others = sentences(5), sentences(5, seed=1) if pairs else None
    again = load_classifier(tmp_path / "out")
    assert (
        again.predict(iter(texts), others) == model.predict(texts, others)
        and again.fingerprint() == model.fingerprint()
    )
    w = load_file(tmp_path / "out" / "head.safetensors")
    for row, text in enumerate(texts):
        v = encoder.encode([text])[0]
        u = encoder.encode([others[row]])[0] if others else v
        f = np.concatenate([v, u, np.abs(v - u), v * u]) if pairs else v
        hidden = np.maximum(w["hidden.weight"] @ f + w["hidden.bias"], 0)
        logits = w["out.weight"] @ hidden + w["out.bias"]
        assert_close(model.logits(texts, others)[row], logits, 4 * encoder.dim, 2 * 6)  # 4 layers and 2 of the head
    with pytest.raises(UserError, match="takes single texts" if not pairs else "takes pairs"):
        model.logits(texts, None if pairs else texts)
    with pytest.raises(UserError, match="texts is one string, 'a gripping film'"):
        model.predict("a gripping film", others)
    with pytest.raises(UserError, match="text 2 is NoneType, not a string"):
        model.predict(["a", "a", None], ["b"] * 3 if pairs else None)
    with pytest.raises(UserError, match="holds no head.safetensors"):
        load_classifier(str(save_encoder(encoder, tmp_path / "plain")))


def settings(tmp_path: Path, **changes: object) -> dict[str, object]:
    return {
        "teacher": tmp_path / "start",
        "task": "flavour",
        "task_dir": tmp_path / "flavour",
        "scratch.embedding_size": 16,
        "scratch.lstm_size": 12,
        "batch_size": 16,
        "max_steps": 60,
        "checkpoint_every": 20,
        "learning_rate": 0.01,
        "length_buckets": 1,
        "onnx": False,
        "cache_dir": tmp_path / "cache",
    } | changes


def test_from_scratch_then_its_logits_teach_a_transformer(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "start")
    flavour(tmp_path / "flavour", pairs=False)
    first = commands.run_inside(
        commands.command("configs/bilstm_sra_task.py", tmp_path / "scratch", settings(tmp_path))
    )
    assert first.returncode == 0, first.stderr[-2000:]
    found = json.loads((tmp_path / "scratch" / "results.json").read_text())["task"]["flavour"]
    assert (
        found["accuracy"] > 85 and found["split"] == "test" and found["rows"] == {"train": 240, "dev": 80, "test": 80}
    )
    model = load_classifier(str(tmp_path / "scratch" / "export"))
    assert (
        model.predict(["a lemon"]) == ["1"] and model.encoder.config.model_type == "bilstm" and model.encoder.dim == 24
    )
    assert exporter.main(["--workdir", str(tmp_path / "scratch"), "--out", str(tmp_path / "again")]) == 0
    assert load_classifier(str(tmp_path / "again")).fingerprint() == model.fingerprint()
    again = settings(tmp_path, student=tmp_path / "start", kd=tmp_path / "scratch", learning_rate=1e-3)
    done = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "kd", again))
    assert done.returncode == 0, done.stderr[-2000:]
    assert "the fine-tuned teacher's logits: 240 asked" in done.stderr
    lines = [json.loads(line) for line in (tmp_path / "kd" / "task" / "metrics.jsonl").read_text().splitlines()]
    losses = [line for line in lines if "loss" in line]
    for line in losses:
        assert line["loss"] == pytest.approx(0.5 * line["cross_entropy"] + 0.5 * line["logit_mse"], rel=1e-4)
    assert losses[-1]["logit_mse"] < losses[0]["logit_mse"]
    other = settings(tmp_path, kd=tmp_path / "scratch", task="mr", task_dir=senteval(tmp_path / "senteval"))
    refused = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "other", other))
    assert refused.returncode == 2 and "tells ('0', '1') apart, and the task mr has ('neg', 'pos')" in refused.stderr


def test_a_distilled_student_is_tuned_on_pairs(tmp_path: Path) -> None:
    from configs import bilstm_sra

    start = make_encoder()
    save_encoder(start, tmp_path / "start")
    cfg = bilstm_sra.get_config()
    cfg.student.embedding_size, cfg.student.lstm_size = 16, 12
    start = replace(start, tokenizer=make_tokenizer(cfg, start))
    distilled = make_bilstm(cfg, start, random_tokens(50, vocab_size=1000), 32)
    export(distilled, tmp_path / "run" / "export")
    flavour(tmp_path / "flavour", pairs=True)
    keys = settings(tmp_path, student=tmp_path / "run", max_steps=20, learning_rate=1e-6)
    done = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "task", keys))
    assert done.returncode == 0, done.stderr[-2000:]
    model = load_classifier(str(tmp_path / "task" / "export"))
    assert model.pairs and model.head["hidden"]["kernel"].shape == (4 * 24, 256) and not model.encoder.dense
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), model.encoder.params, distilled.params)
    assert 0 < max(jax.tree.leaves(moved)) < 1e-4  # by twenty steps of 1e-6 from the distilled weights
    missing = commands.run_inside(
        commands.command("configs/bilstm_sra_task.py", tmp_path / "none", settings(tmp_path, task_dir=""))
    )
    assert missing.returncode == 2 and "--config.task and --config.task_dir are needed" in missing.stderr


def test_the_loss_with_a_teacher_and_rows_without_a_label() -> None:
    rng = np.random.default_rng(0)
    cfg = bilstm_sra_task.get_config()
    cfg.update_from_flattened_dict({"task_dir": "x", "loss.hard": 0.3, "scratch.lstm_size": 12, "student": "given"})
    (stage,) = METHODS["classify"](cfg)
    rows = Split(["a", "b"], None, np.array([0, 1], np.int32))
    task = Task("mine", ("no", "yes"), rows, rows, None)
    encoder, feed = make_encoder(num_layers=1), TaskFeed(None, task, rows)  # type: ignore[arg-type]
    method = stage.build(stage.cfg, Start(encoder, False, 32, random_tokens(20), lambda rows: rows, feed))
    vectors, logits = rng.normal(size=(5, 1, 32)).astype(np.float32), rng.normal(size=(5, 2)).astype(np.float32)
    labels = np.array([1, -1, 0, -1, 1], np.int32)
    batch = {"label": labels, "logits": logits}
    total, metrics = method.objective(method.params, method.frozen, {"sentence": vectors}, batch)
    z = np.asarray(classifier_head.classifier_logits(method.params["head"], vectors), np.float64)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    entropy = -np.mean([log_p[i, labels[i]] for i in (0, 2, 4)])
    squares = np.mean((z - logits) ** 2)
    assert float(metrics["cross_entropy"]) == pytest.approx(entropy, rel=1e-5)
    # Row by row: of five, three have a label.
    assert float(total) == pytest.approx(0.3 * entropy * 3 / 5 + 0.7 * squares, rel=1e-5)
    right = np.mean([z[i].argmax() == labels[i] for i in (0, 2, 4)])
    assert float(metrics["accuracy"]) == pytest.approx(right)


def test_augmented_rows_are_answered_by_the_teacher(tmp_path: Path) -> None:
    save_encoder(make_encoder(), tmp_path / "start")
    flavour(tmp_path / "flavour", pairs=False)
    encoder = make_encoder(num_layers=1)
    export(encoder, tmp_path / "teacher" / "export")
    head = random_head(encoder.dim, 1, 8, 2, np.random.default_rng(0))
    save_head(Classifier(encoder, head, ("0", "1"), False), tmp_path / "teacher" / "export")
    keys = settings(tmp_path, kd=tmp_path / "teacher", augment="ts", max_steps=10, checkpoint_every=10, log_every=5)
    done = commands.run_inside(commands.command("configs/bilstm_sra_task.py", tmp_path / "ts", keys))
    assert done.returncode == 0, done.stderr[-2000:]
    found = re.search(r"240 training rows and (\d+) variants", done.stderr)
    assert found and 3000 < int(found[1]) <= 4800
    cfg = bilstm_sra_task.get_config()
    cfg.update_from_flattened_dict(
        {key: str(value) if isinstance(value, Path) else value for key, value in keys.items()}
    )
    _, rows, teacher = read_rows(cfg)
    assert teacher is not None
    logits = teacher_logits(teacher, rows, cache_folder(cfg))
    assert rows.labels[240:].tolist() == [-1] * int(found[1])
    texts = rows.texts[238:243]
    expected = Classifier(encoder, head, ("0", "1"), False).logits(texts)
    assert_close(logits[238:243], expected, 64, 2 * 3)  # a layer and 2 of the head
    planned = commands.command("configs/bilstm_sra_task.py", tmp_path / "plan", keys | {"cache_dir": tmp_path / "none"})
    plan = commands.run_inside([*planned, "--dry_run"])
    assert plan.returncode == 0 and "logits" not in plan.stderr, plan.stderr[-2000:]
    assert not (tmp_path / "none" / "logits").exists()  # nobody is asked for a plan
    alone = commands.run_inside(
        commands.command("configs/bilstm_sra_task.py", tmp_path / "alone", settings(tmp_path, augment="ts"))
    )
    assert alone.returncode == 2 and "kd names no teacher to answer them" in alone.stderr
