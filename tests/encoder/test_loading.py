"""What a sentence-transformers folder of others says is computed as sentence-transformers computes it, or refused by name."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, save_encoder, sentences
from hostile_setting import change, refused, write_whole
from hub_setting import only_hub
from safetensors.numpy import save_file

import jdistill
from jdistill.encoder.encoder import Encoder
from jdistill.export.folder import export

TEXTS = [*sentences(6), "A House by THE River", "ÉCLAIR and Straße"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return shutil.copytree(whole, tmp_path / "model")


def theirs(folder: Path) -> Any:
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="needs the torch extra")
    return sentence_transformers.SentenceTransformer(str(folder), device="cpu")


def assert_as_theirs(model: Encoder, folder: Path) -> None:
    expected = theirs(folder)
    assert model.max_length == expected.max_seq_length
    np.testing.assert_allclose(model.encode(TEXTS), expected.encode(TEXTS, show_progress_bar=False), atol=1e-5)


def retype(folder: Path, place: int, kind: str) -> None:
    rows = json.loads((folder / "modules.json").read_text())
    rows[place]["type"] = kind
    (folder / "modules.json").write_text(json.dumps(rows))


@pytest.mark.parametrize(
    ("place", "kind"), [(0, "custom_st.Transformer"), (1, "my.Pooling"), (3, "x.sentence.Normalize")]
)
def test_classes_of_others_are_not_taken_for_the_librarys(folder: Path, place: int, kind: str) -> None:
    retype(folder, place, kind)
    message = refused(folder, f"'{kind}'", "st:SOURCE", "--config.trust_remote_code")
    assert "modules.json lists" in message


@pytest.mark.parametrize(
    "where", ["models.{}", "models.{0}.{0}", "base.modules.{}", "sentence_transformer.modules.x.{}"]
)
def test_the_librarys_classes_wherever_it_had_them(folder: Path, whole: Path, where: str) -> None:
    for place, kind in enumerate(["Transformer", "Pooling", "Dense", "Normalize"]):
        retype(folder, place, "sentence_transformers." + where.format(kind))
    assert jdistill.load(str(folder)).fingerprint() == jdistill.load(str(whole)).fingerprint()


def cased(model: Encoder, folder: Path) -> Path:
    """The model's folder with a tokenizer that keeps the case."""
    save_encoder(model, folder)
    change(folder / "tokenizer_config.json", do_lower_case=False)
    state = json.loads((folder / "tokenizer.json").read_text())
    state["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(state))
    return folder


def test_lower_case_where_the_folder_asks_for_it(tmp_path: Path) -> None:
    folder = cased(make_encoder(num_layers=1), tmp_path / "m")
    kept = jdistill.load(str(folder))
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    model = jdistill.load(str(folder))
    assert kept.tokenize(["A House"]) != model.tokenize(["A House"]) == kept.tokenize(["a house"])
    assert kept.tokenizer_fingerprint() != model.tokenizer_fingerprint()
    assert_as_theirs(model, folder)
    export(model, tmp_path / "out")
    again = jdistill.load(str(tmp_path / "out"))
    assert again.fingerprint() == model.fingerprint()


def test_a_tokenizer_that_has_no_case_stays_as_it_is(folder: Path, whole: Path) -> None:
    change(folder / "sentence_bert_config.json", do_lower_case=True)
    assert jdistill.load(str(folder)).fingerprint() == jdistill.load(str(whole)).fingerprint()


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("2_Dense", "use_residual", True),
        ("2_Dense", "module_input_name", "token_embeddings"),
        ("2_Dense", "module_output_name", "projected"),
        ("3_Normalize", "module_input_name", "token_embeddings"),
        ("3_Normalize", "module_output_name", "unit"),
    ],
)
def test_a_step_that_does_something_else_is_refused(folder: Path, name: str, key: str, value: object) -> None:
    path = folder / name / "config.json"
    if not path.exists():
        path.write_text("{}")
    change(path, module_input_name="sentence_embedding")
    jdistill.load(str(folder))
    change(path, **{key: value})
    refused(folder, f"{name}/config.json: {key}", "st:SOURCE")


def test_vectors_that_are_cut_are_refused(folder: Path) -> None:
    path = folder / "config_sentence_transformers.json"
    for harmless in (None, 16, 768):
        change(path, truncate_dim=harmless)
        assert jdistill.load(str(folder)).dim == 16
    change(path, truncate_dim=8)
    refused(folder, "truncate_dim is 8", "of the 16 numbers", "st:SOURCE")


def test_another_similarity_than_the_cosine_is_told_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "jdistill"):
        change(folder / "config_sentence_transformers.json", similarity_fn_name="dot")
        jdistill.load(str(folder))
        assert not caplog.records, "of unit length"
        rows = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps(rows[:-1]))
        jdistill.load(str(folder))
    assert "WARNING: " in caplog.text and "compared by dot; " in caplog.text
    caplog.clear()
    change(folder / "config_sentence_transformers.json", similarity_fn_name="cosine")
    jdistill.load(str(folder))
    assert not caplog.records


def test_a_language_model_without_modules_is_pooled_by_its_last_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save_encoder(make_decoder(), tmp_path / "m")
    (folder / "modules.json").unlink()
    assert jdistill.load(str(folder)).pooling == "mean"  # LlamaModel
    change(folder / "config.json", architectures=["LlamaForCausalLM"])
    with caplog.at_level(logging.INFO, "jdistill"):
        model = jdistill.load(str(folder))
    assert model.pooling == "lasttoken" and "its vectors are the last token's" in caplog.text
    assert_as_theirs(model, folder)
    change(folder / "config.json", is_causal=False)
    assert jdistill.load(str(folder)).pooling == "mean"


def test_a_chat_template_is_refused_told_of_or_not_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save_encoder(make_decoder(), tmp_path / "m")
    (folder / "chat_template.jinja").write_text(
        "{% for said in messages %}<{{ said.role }}> {{ said.content }}{% endfor %}"
    )
    plain = jdistill.load(str(folder))
    assert_as_theirs(plain, folder)
    assert not caplog.records
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    settings = {
        "modality_config": {"text": text, "message": text | {"format": "flat"}},
        "module_output_name": "token_embeddings",
    }
    change(folder / "sentence_bert_config.json", **settings)
    assert np.abs(theirs(folder).encode(TEXTS) - plain.encode(TEXTS)).max() > 0.01
    refused(folder, "sentence_bert_config.json: modality_config", "chat template", "st:SOURCE")
    (folder / "modules.json").unlink()
    with caplog.at_level(logging.INFO, "jdistill"):
        jdistill.load(str(folder))
    assert "has a chat template and no modules.json" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config_args", {"num_hidden_layers": 1}),
        ("processor_kwargs", {"truncation_side": "left"}),
        ("model_kwargs", {"torch_dtype": "float32", "tie_weights": True}),
        ("transformer_task", "fill-mask"),
        ("tokenizer_name_or_path", "owner/tok"),
        ("modality_config", {"text": {"method_output_name": ["hidden_states", -2]}}),
    ],
)
def test_settings_that_change_the_model_are_refused(folder: Path, key: str, value: object) -> None:
    change(folder / "sentence_bert_config.json", **{key: value})
    refused(folder, f"sentence_bert_config.json: {key} ", "st:SOURCE")
    change(folder / "sentence_bert_config.json", **{key: ...}, model_args={"attn_implementation": "eager"})
    jdistill.load(str(folder))


def test_the_length_by_an_older_name_and_above_the_tokenizers(folder: Path) -> None:
    path = folder / "sentence_bert_config.json"
    change(path, max_seq_length=20)
    change(folder / "tokenizer_config.json", model_max_length=12)
    model = jdistill.load(str(folder))
    assert model.max_length == 20
    path.rename(folder / "sentence_xlm-roberta_config.json")
    assert_as_theirs(jdistill.load(str(folder)), folder)
    path.write_text("{}")  # says nothing
    assert jdistill.load(str(folder)).max_length == 20
    path.write_text(json.dumps({"max_seq_length": None}))
    assert jdistill.load(str(folder)).max_length == 12
    change(path, max_seq_length=1000)
    assert jdistill.load(str(folder)).max_length == 64, "positions there are"


def test_a_longer_length_than_the_tokenizers_is_exported(folder: Path, tmp_path: Path) -> None:
    change(folder / "tokenizer_config.json", model_max_length=12)
    model = replace(jdistill.load(str(folder)), max_length=20)
    out = save_encoder(model, tmp_path / "out")
    assert json.loads((out / "tokenizer_config.json").read_text())["model_max_length"] == 20


def test_an_adapter_is_no_model(folder: Path) -> None:
    assert jdistill.load(folder).source == str(folder)  # a Path is taken too
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "owner/base"}))
    refused(folder, "is an adapter (adapter_config.json)", "merge it", "st:SOURCE")


def test_weighted_layers_start_at_the_fourth_where_nothing_is_said(tmp_path: Path) -> None:
    folder = save_encoder(replace(make_encoder(num_layers=6), pooling="avg_last2"), tmp_path / "m")
    place = folder / "1_WeightedLayerPooling"
    change(place / "config.json", layer_start=...)
    save_file({"layer_weights": np.array([0, 1, 1], np.float32)}, place / "model.safetensors")
    assert_as_theirs(jdistill.load(str(folder)), folder)


def test_an_export_from_the_hub_is_whole_without_what_is_not_read_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = replace(make_encoder(num_layers=4), pooling="max_last2")  # which sentence-transformers runs by a .py file

    def add_card(folder: Path) -> None:
        (folder / "README.md").write_text("A card.")

    export(model, tmp_path / "out", onnx=True, add=[add_card])
    with only_hub(monkeypatch, tmp_path) as hub, caplog.at_level(logging.WARNING, "jdistill"):
        hub.add_commit("owner/student", tmp_path / "out")
        np.testing.assert_array_equal(jdistill.load("owner/student").encode(TEXTS), model.encode(TEXTS))
        assert not any(name in request for request in hub.requests for name in ("README.md", ".onnx", ".py"))
    assert "is not as it was exported" not in caplog.text
