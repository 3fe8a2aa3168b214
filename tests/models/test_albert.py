"""ALBERT against transformers (torch), its files, its students, and a run from a teacher of its kind."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import commands
import numpy as np
import pytest
from albert_setting import make_albert, tiny_albert_config
from conftest import save_encoder, sentences
from hostile_setting import change, refused
from ml_collections import ConfigDict
from simtde_setting import random_tokens
from torch_parity import assert_gradient_equal, assert_states_equal, read_back
from unigram_setting import FOREIGN

import jdistill
from configs import ibkd
from jdistill.core.errors import UserError
from jdistill.encoder.formats import body
from jdistill.export import torch_int8
from jdistill.export.folder import export
from jdistill.export.onnx import graph, runtime
from jdistill.export.targets import add_form
from jdistill.models.albert import AlbertConfig
from jdistill.models.registry import architecture_of, count_parameters
from jdistill.students.transformer import make_student

TEXTS = [*sentences(6), *FOREIGN, "", " ".join(sentences(30))]
SHAPES = {
    "one layer": {},
    "as wide as the layers": {"embedding_size": 48, "hidden_act": "gelu"},
    "two groups of five": {"num_hidden_groups": 2, "num_hidden_layers": 5},
    "groups of two layers": {"num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "relu"},
}


def torch_model(folder: Path, head: bool = False, **changes: Any) -> Any:
    """A random AlbertModel in double precision, saved in float32."""
    torch = pytest.importorskip("torch", reason="parity needs the torch extra")
    import transformers

    torch.manual_seed(0)
    sizes = dict(vocab_size=120, embedding_size=24, hidden_size=48, num_hidden_layers=3, num_attention_heads=4)
    config = transformers.AlbertConfig(**(sizes | {"intermediate_size": 96, "max_position_embeddings": 50} | changes))
    model = (transformers.AlbertForMaskedLM(config) if head else transformers.AlbertModel(config, False)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name:
            torch.nn.init.normal_(parameter, float(name.endswith("weight")), 0.1)
    model.save_pretrained(folder)
    return model.double()


@pytest.mark.parametrize("name", SHAPES)
def test_every_hidden_state_equals_transformers(tmp_path: Path, name: str) -> None:
    assert_states_equal(torch_model(tmp_path, **SHAPES[name]), tmp_path, 96)


def test_the_gradient_is_torchs(tmp_path: Path) -> None:
    model = torch_model(tmp_path, **SHAPES["groups of two layers"])
    assert_gradient_equal(model, tmp_path)


def test_a_head_and_its_prefix_are_left_out(tmp_path: Path) -> None:
    model = torch_model(tmp_path, head=True)
    config = body.read_model_config(tmp_path)
    tensors = body.read_tensors(tmp_path)
    assert any(name.startswith("albert.") for name in tensors) and any(
        name.startswith("predictions.") for name in tensors
    )
    params = architecture_of(config).from_tensors(config, tensors, "head")
    word = model.albert.embeddings.word_embeddings.weight.detach().numpy()
    np.testing.assert_array_equal(params["embeddings"]["word"]["embedding"], word)


def test_the_config_goes_both_ways(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = tiny_albert_config(num_layers=8, num_groups=2, group_layers=2)
    keys = architecture_of(config).files(config, 64)["config.json"]
    transformers.AutoConfig.for_model(**keys).save_pretrained(tmp_path)
    assert body.read_model_config(tmp_path) == config


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hidden_size": ...}, "hidden_size is missing"),
        ({"intermediate_size": ...}, "intermediate_size is missing"),
        ({"num_hidden_layers": ...}, "num_hidden_layers is missing"),
        ({"num_attention_heads": 5}, "num_attention_heads is 5, which does not divide the width 32"),
        ({"num_hidden_layers": "4"}, "num_hidden_layers is a string"),
        ({"num_hidden_groups": 0}, "num_hidden_groups is 0; a whole number from 1 to 4"),
        ({"num_hidden_groups": 5}, "num_hidden_groups is 5; a whole number from 1 to 4"),
        ({"num_hidden_groups": 2}, "tells of 2 layers with parameters of their own"),
        ({"inner_group_num": 3}, "tells of 3 layers with parameters of their own"),
        ({"inner_group_num": 10**6}, "inner_group_num is 1000000"),
        ({"inner_group_num": True}, "inner_group_num is True"),
        ({"embedding_size": 0}, "embedding_size is 0"),
        ({"embedding_size": 17}, "word_embeddings.weight has shape"),
        ({"type_vocab_size": 0}, "type_vocab_size is 0"),
        ({"hidden_act": "swish9"}, "hidden_act is 'swish9'"),
        ({"hidden_dropout_prob": "no"}, "hidden_dropout_prob is a string"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"pad_token_id": -1}, "pad_token_id is -1"),
        ({"vocab_size": 30}, "word_embeddings.weight has shape"),
    ],
)
def test_a_config_that_does_not_fit_is_named(tmp_path: Path, keys: dict, message: str) -> None:
    save_encoder(make_albert(), tmp_path)
    change(tmp_path / "config.json", **keys)
    refused(tmp_path, message)


def test_other_frameworks_encode_an_export_as_flax_does(tmp_path: Path) -> None:
    """export() itself compares ONNX Runtime and sentence-transformers, texts as long as the model takes among them."""
    model = make_albert(num_layers=6, num_groups=2)
    checks = export(model, tmp_path / "out", onnx=True)
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    again = jdistill.load(str(tmp_path / "out"))
    assert again.config == model.config and again.max_length == 64
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    add_form(model, tmp_path / "out", "onnx-int8")
    torch_int8.save_int8_folder(model, tmp_path / "out", tmp_path / "out" / "torch_int8")
    for small in (
        runtime.load_onnx_encoder(str(tmp_path / "out"), "onnx/model_quint8_avx2.onnx"),
        pytest.importorskip("sentence_transformers").SentenceTransformer(
            str(tmp_path / "out" / "torch_int8"), device="cpu", trust_remote_code=True
        ),
    ):
        assert (small.encode(TEXTS) * model.encode(TEXTS)).sum(1).mean() > 0.95


def test_a_graph_of_a_shared_layer_has_its_weights_once(tmp_path: Path) -> None:
    sizes = []
    for layers in (2, 12):
        folder = save_encoder(make_albert(num_layers=layers), tmp_path / str(layers))
        _, constants = graph.build_graph(folder)
        sizes.append(sum(value.nbytes for name, value in constants if "weight" in name or "bias" in name))
    assert sizes[0] == sizes[1]


def student_keys(**changes: object) -> ConfigDict:
    cfg = ibkd.get_config()
    cfg.student.update(changes)
    return cfg


@pytest.mark.parametrize("which", ["last", "first", "spread"])
def test_a_student_passes_the_shared_layer_fewer_times(which: str) -> None:
    start = make_albert(num_layers=6)
    student = make_student(student_keys(layers=2, copy_layers=which), start, random_tokens(20))
    assert student.config == dataclasses.replace(start.config, num_layers=2, hidden_dropout=0.0, attention_dropout=0.0)
    assert count_parameters(student.config) == count_parameters(start.config)
    np.testing.assert_array_equal(student.params["layer_0"]["up"]["kernel"], start.params["layer_0"]["up"]["kernel"])


@pytest.mark.parametrize(
    ("changes", "which", "layers", "sharing", "taken"),
    [
        ({"num_layers": 12, "num_groups": 4}, "last", 6, (2, 1), (2, 3)),
        ({"num_layers": 12, "num_groups": 4}, "first", 3, (1, 1), (0,)),
        ({"num_layers": 12, "num_groups": 4}, "spread", 4, (4, 1), (0, 1, 2, 3)),
        # The last five are 2 2 3 3 3, which two groups of one size are not: a layer becomes two.
        ({"num_layers": 12, "num_groups": 4}, "last", 5, (3, 1), (2, 3, 3)),
        ({"num_layers": 8, "num_groups": 2, "group_layers": 2}, "last", 4, (1, 2), (2, 3)),
        ({"num_layers": 8, "num_groups": 2, "group_layers": 2}, "last", 3, (3, 1), (3, 2, 3)),
    ],
)
def test_layers_of_a_student_that_were_one_remain_one(
    changes: dict, which: str, layers: int, sharing: tuple[int, int], taken: tuple[int, ...]
) -> None:
    start = make_albert(**changes)
    student = make_student(student_keys(layers=layers, copy_layers=which), start, random_tokens(20))
    assert isinstance(student.config, AlbertConfig)
    assert (student.config.num_groups, student.config.group_layers) == sharing
    for own, of_start in enumerate(taken):
        np.testing.assert_array_equal(
            student.params[f"layer_{own}"]["up"]["kernel"], start.params[f"layer_{of_start}"]["up"]["kernel"]
        )
    assert set(student.params) == {"embeddings", "project", *(f"layer_{own}" for own in range(len(taken)))}
    # The student's states are those of the start's layers that it took, whatever the sharing.
    passed = [start.config.order[k] for k in range(len(start.config.order))]
    assert [taken[own] for own in student.config.order] in ([*passed[-layers:]], [*passed[:layers]], [*passed[2::3]])


def test_token_embeddings_become_narrower_still() -> None:
    start, tokens = make_albert(), random_tokens(200)
    compact = make_student(student_keys(embedding_size=15, layers=2), start, tokens)
    texts = tokens.lists(np.arange(50))
    ids, places = np.concatenate(texts)[None], np.concatenate([np.arange(len(text)) for text in texts])[None]
    embed = architecture_of(start.config).embed
    own, fitted = (np.asarray(embed(m.config, m.params, ids, np.float32, places)) for m in (start, compact))
    assert compact.params["embeddings"]["word"]["embedding"].shape[1] == 15
    assert (
        np.square(own - fitted).mean() < 0.2 * own.var(1).mean()
    )  # one axis is lost, and its norm; at random it is 1.5
    for keys in ({"start": "random", "embedding_size": 20}, {"hidden_size": 16}, {"copy_layers": "none", "layers": 2}):
        student = make_student(student_keys(**keys), start, tokens)
        assert student.config.num_groups == 1 and np.isfinite(student.encode(TEXTS)).all()
    for keys, message in (
        ({"embedding_size": 17}, "which are 16 wide; set --config.student.embedding_size=8"),
        ({"embedding_size": 0}, "embedding_size=32: .* or -1 for the start's own"),
        ({"hidden_size": 30}, "hidden_size=30 does not divide into the start's 4 heads"),
        ({"layers": 5}, "layers=5 must lie in 1..4"),
        ({"start": "eigen"}, "start='eigen' is not one of"),
    ):
        with pytest.raises(UserError, match=message):
            make_student(student_keys(**keys), start, tokens)


def test_from_a_teacher_of_a_hub_to_a_student_that_others_load(tmp_path: Path) -> None:
    """A run of SimTDE, whose export is checked by ONNX Runtime and sentence-transformers, on text of several scripts."""
    transformers = pytest.importorskip("transformers")
    teacher = make_albert()
    save_encoder(teacher, tmp_path / "teacher")
    again = jdistill.load(str(tmp_path / "teacher"))
    assert again.config == teacher.config and again.tokenizer("")["input_ids"] == [2, 3]
    np.testing.assert_array_equal(again.encode(FOREIGN), teacher.encode(FOREIGN))
    (tmp_path / "text.txt").write_text("\n".join([*sentences(120), *FOREIGN]) + "\n")
    keys = {
        "teacher": tmp_path / "teacher", "text": tmp_path / "text.txt", "text_column": "", "cache_dir": tmp_path / "cache",
        "student.layers": 2, "student.embedding_size": 8, "held_out": 10, "batch_size": 8, "max_steps": 4, "checkpoint_every": 4,
        "latency_texts": 0, "index_texts": 0,
    }  # fmt: skip
    done = commands.run_inside(commands.command("configs/simtde.py", tmp_path / "run", keys))
    assert done.returncode == 0, done.stderr[-3000:]
    checks = json.loads((tmp_path / "run" / "results.json").read_text())["export_max_abs_difference"]
    assert set(checks) == {"ONNX Runtime", "sentence-transformers"} and max(checks.values()) < 1e-5
    student = jdistill.load(str(tmp_path / "run" / "export"))
    assert (student.config.embedding_size, student.config.num_layers, student.config.model_type) == (8, 2, "albert")
    assert student.tokenize(FOREIGN) == teacher.tokenize(FOREIGN)
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(tmp_path / "run" / "export"), device="cpu"
    )
    np.testing.assert_allclose(theirs.encode(FOREIGN), student.encode(FOREIGN), atol=1e-5)
    assert type(transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "export")).__name__ == "AlbertTokenizer"


def test_the_parameters_of_a_saved_model_are_given_back(tmp_path: Path) -> None:
    torch_model(tmp_path)
    config, params = read_back(tmp_path)
    assert set(params) == {"embeddings", "project", "layer_0"} and config.num_layers == 3
