"""MPNet against transformers (torch), its files, its students, and a run from a teacher of its kind."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import commands
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_params, save_encoder, sentences
from ml_collections import ConfigDict
from mpnet_setting import make_mpnet, tiny_mpnet_config
from parity import assert_close, excess
from simtde_setting import random_tokens
from steps import hidden_states

import jdistill
from configs import ibkd
from jdistill.core.errors import UserError
from jdistill.encoder.formats import body
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.export import torch_int8
from jdistill.export.folder import export
from jdistill.export.onnx import runtime
from jdistill.export.targets import add_form
from jdistill.models.mpnet import MpnetConfig
from jdistill.models.registry import architecture_of
from jdistill.models.relative import bucket_of
from jdistill.students.transformer import make_student

TEXTS = [*sentences(6), "", " ".join(sentences(30))]


def torch_model(folder: Path) -> Any:
    """A random MPNetModel in double precision, saved in float32; its table of relative positions weighs as much as the scores."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    import transformers

    torch.manual_seed(0)
    sizes = dict(vocab_size=120, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
    model = transformers.MPNetModel(transformers.MPNetConfig(**sizes, max_position_embeddings=150)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "relative" in name:
            torch.nn.init.normal_(parameter, 0.0, 1.0 if "relative" in name else 0.1)
    model.save_pretrained(folder)
    return model.double()


def test_every_hidden_state_equals_transformers(tmp_path: Path) -> None:
    model = torch_model(tmp_path)
    import torch

    config = body.read_model_config(tmp_path)
    assert isinstance(config, MpnetConfig) and config.usable_positions == 148
    architecture, tensors = architecture_of(config), read_tensors(tmp_path)
    params = architecture.from_tensors(config, tensors, "memory")
    for name, tensor in architecture.to_tensors(config, params).items():
        np.testing.assert_array_equal(tensor, tensors[name])
    rng = np.random.default_rng(1)
    ids, mask = rng.integers(3, 120, (4, 140)), np.ones((4, 140), int)  # longer than the farthest bucket begins
    for row, length in enumerate((140, 9, 1, 100)):
        ids[row, length:], mask[row, length:] = config.pad_token_id, 0
    with torch.no_grad():
        theirs = model(torch.tensor(ids), attention_mask=torch.tensor(mask), output_hidden_states=True).hidden_states
    ours = hidden_states(config, params, ids, mask)
    without = hidden_states(config, params | {"relative": {"embedding": np.zeros((32, 4), np.float32)}}, ids, mask)
    assert len(ours) == len(theirs) == 4
    for layer, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        one, other = np.asarray(a)[mask == 1], b.numpy()[mask == 1]
        assert_close(one, other, 96, max(layer, 1), what=f"state {layer}")
    narrow = np.asarray(hidden_states(config, params, ids, mask, dtype=jnp.bfloat16)[-1], np.float64)
    assert_close(narrow[mask == 1], theirs[-1].numpy()[mask == 1], 96, 3, dtype="bfloat16", what="bfloat16")
    assert excess(np.asarray(without[-1])[mask == 1], theirs[-1].numpy()[mask == 1], 96, 3) > 100


def test_buckets_are_those_of_transformers() -> None:
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

    distances = np.arange(-600, 601)
    theirs = MPNetEncoder.relative_position_bucket(torch.tensor(distances)).numpy()
    np.testing.assert_array_equal(bucket_of(distances), theirs)


def test_padding_and_batch_mates_change_nothing() -> None:
    config = tiny_mpnet_config()
    params, ids = random_params(config), np.random.default_rng(0).integers(5, 1000, (1, 6))
    alone = hidden_states(config, params, ids, np.ones((1, 6), bool))[-1]
    padded = np.pad(np.repeat(ids, 3, 0), ((0, 0), (0, 5)), constant_values=777)
    together = hidden_states(config, params, padded, np.arange(11)[None] < np.array([[6], [11], [2]]))[-1]
    assert_close(together[0, :6], alone[0], config.intermediate_size, 2 * config.num_layers)


def test_the_config_goes_both_ways(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = tiny_mpnet_config(buckets=40)
    keys = architecture_of(config).files(config, 64)["config.json"]
    transformers.AutoConfig.for_model(**keys).save_pretrained(tmp_path)
    assert body.read_model_config(tmp_path) == config
    for change, message in (
        ({"pad_token_id": 0}, "pad_token_id is 0; an MPNet counts positions from the padding token 1"),
        ({"relative_attention_num_buckets": 8}, "relative_attention_num_buckets is 8"),
        ({"max_position_embeddings": 2}, "max_position_embeddings is 2"),
        ({"num_attention_heads": 5}, "num_attention_heads is 5, which does not divide the width 32"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(keys | change))
        with pytest.raises(UserError, match=message):
            body.read_model_config(tmp_path)


def test_other_frameworks_encode_an_export_as_flax_does(tmp_path: Path) -> None:
    """export() itself compares ONNX Runtime and sentence-transformers, texts as long as the model takes among them."""
    transformers = pytest.importorskip("transformers")
    model = make_mpnet()
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == model.config and again.max_length == 128
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    np.testing.assert_allclose(
        runtime.load_onnx_encoder(str(tmp_path / "out")).encode(TEXTS), model.encode(TEXTS), atol=1e-5
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(tokenizer).__name__ == "MPNetTokenizer" and tokenizer("")["input_ids"] == [0, 2]
    add_form(model, tmp_path / "out", "onnx-int8")
    torch_int8.save_int8_folder(model, tmp_path / "out", tmp_path / "out" / "torch_int8")
    for small in (
        runtime.load_onnx_encoder(str(tmp_path / "out"), "onnx/model_quint8_avx2.onnx"),
        pytest.importorskip("sentence_transformers").SentenceTransformer(
            str(tmp_path / "out" / "torch_int8"), device="cpu", trust_remote_code=True
        ),
    ):
        assert (small.encode(TEXTS) * model.encode(TEXTS)).sum(1).mean() > 0.95


def student_keys(**changes: object) -> ConfigDict:
    cfg = ibkd.get_config()
    cfg.student.update(changes)
    return cfg


def test_a_student_takes_whole_layers() -> None:
    start, tokens = make_mpnet(), random_tokens(20)
    student = make_student(student_keys(layers=2), start, tokens)
    assert student.config == dataclasses.replace(start.config, num_layers=2, hidden_dropout=0.0, attention_dropout=0.0)
    for k, layer in ((0, 2), (1, 3)):
        np.testing.assert_array_equal(
            student.params[f"layer_{k}"]["up"]["kernel"], start.params[f"layer_{layer}"]["up"]["kernel"]
        )
    np.testing.assert_array_equal(student.params["relative"]["embedding"], start.params["relative"]["embedding"])
    random = make_student(student_keys(copy_layers="none"), start, tokens)
    assert random.params["layer_3"]["up"]["kernel"].std() == pytest.approx(0.02, rel=0.1)
    assert np.isfinite(random.encode(TEXTS)).all()


@pytest.mark.parametrize("change", [{"embedding_size": 12}, {"hidden_size": 16}])
def test_a_compact_student_is_refused_and_told_why(change: dict) -> None:
    with pytest.raises(
        UserError, match="the start is an MPNet, of which a student takes whole layers: set --config.student"
    ):
        make_student(student_keys(**change), make_mpnet(), random_tokens(20))


def test_a_run_of_ibkd_ends_with_a_student_that_others_load(tmp_path: Path) -> None:
    teacher = save_encoder(make_mpnet(), tmp_path / "teacher")
    (tmp_path / "text.txt").write_text("\n".join(sentences(300)))
    settings: dict[str, object] = {
        "teacher": teacher,
        "start": "",
        "text": tmp_path / "text.txt",
        "text_column": "",
        "triplets": "",
        "senteval": "",
        "student.layers": 2,
        "batch_size": 32,
        "max_steps": 30,
        "checkpoint_every": 15,
        "log_every": 1,
        "learning_rate": 1e-3,
        "length_buckets": 1,
        "index_texts": 0,
        "latency_texts": 0,
        "cache_dir": tmp_path / "cache",
    }
    done = commands.run_inside(commands.command("configs/ibkd.py", tmp_path / "run", settings))
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in (tmp_path / "run/distil/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 30 and np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5]), losses
    student = jdistill.load(str(tmp_path / "run/export"))
    assert student.config.model_type == "mpnet" and student.config.num_layers == 2
    assert "MPNetTokenizer" in (tmp_path / "run/export/tokenizer_config.json").read_text()


def test_simtde_says_that_there_is_no_compact_mpnet(tmp_path: Path) -> None:
    teacher = save_encoder(make_mpnet(), tmp_path / "teacher")
    done = commands.run_inside(
        commands.command("configs/simtde.py", tmp_path / "run", {"teacher": teacher, "text": "none.txt"})
    )
    assert done.returncode == 2 and "is a mpnet, which has no form with narrower ones" in done.stderr
