"""JSON files of a stranger's model folder: what is no JSON, or a key that no model can have, ends in one line that names it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import make_decoder, make_encoder, save_encoder
from hostile_setting import change, refused, write_whole

import jdistill


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to be broken."""
    return shutil.copytree(whole, tmp_path / "model")


BROKEN = {
    "empty": b"",
    "half": b'{"a": [1,',
    "no UTF-8": b'{"a": "\xff\xfe"}',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "many digits": b'{"a": ' + b"9" * 5000 + b"}",
}
FILES = (
    "config.json",
    "modules.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
)


@pytest.mark.parametrize("name", FILES)
def test_json_that_is_none_names_its_file(folder: Path, name: str) -> None:
    path = folder / name
    assert path.is_file()
    for content in BROKEN.values():
        path.write_bytes(content)
        refused(folder, name)
    others: list[Any] = [7, "a string", True, {} if name == "modules.json" else []]
    for value in others:
        path.write_text(json.dumps(value))
        refused(folder, name)
    path.unlink()
    path.mkdir()
    refused(folder, name)
    path.rmdir()
    path.symlink_to("not-there.json")
    refused(folder, name)


CONFIG_KEYS = [
    ("vocab_size", [..., None, "30522", 0, -1, 1.5, True, [], {}, 10**30, float("nan"), float("inf")]),
    ("hidden_size", [..., None, "32", 0, -32, 33, 10**9, [32]]),
    ("num_hidden_layers", [..., None, "4", 0, -1, 10**8, 10**30, True]),
    ("num_attention_heads", [..., None, "4", 0, -4, 5, 10**8]),
    ("intermediate_size", [..., "64", 0, -1, 10**9, {}]),
    ("max_position_embeddings", ["64", 0, -1, 10**12, [], float("nan")]),
    ("type_vocab_size", ["2", -1, 10**9, {}]),
    ("layer_norm_eps", ["0", -1.0, float("nan"), float("inf"), [], True]),
    ("hidden_dropout_prob", ["0", -0.1, 1.1, float("nan"), []]),
    ("attention_probs_dropout_prob", ["0", 2, {}]),
    ("hidden_act", [1, [], {}, "none_such"]),
    ("pad_token_id", ["0", -1, 10**9, 0.5, []]),
    ("model_type", [..., None, 1, [], {}, "none_such"]),
    ("position_embedding_type", [1, [], "relative_key"]),
]


@pytest.mark.parametrize(("key", "values"), CONFIG_KEYS, ids=[key for key, _ in CONFIG_KEYS])
def test_config_json_names_the_key(folder: Path, key: str, values: list[Any]) -> None:
    before = (folder / "config.json").read_text()
    for value in values:
        (folder / "config.json").write_text(before)
        change(folder / "config.json", **{key: value})
        message = refused(folder)
        # A size that another model could have is found where it meets the others, or the tensors.
        elsewhere = ("config.json asks for", "config.json tells of", "do not belong", "does not divide")
        assert f"config.json: {key}" in message or any(word in message for word in elsewhere), (value, message)


def test_layers_by_the_hundred_million_cost_nothing(folder: Path) -> None:
    change(folder / "config.json", num_hidden_layers=9_999)
    refused(folder, "9999 layers", "of 4")


MODULE_ROWS = [
    ([{"path": ""}], "type is missing"),
    ([{"type": "x.Transformer"}], "path is missing"),
    ([{"type": 5, "path": ""}], "type is 5"),
    ([{"type": "x.Transformer", "path": ["a"]}], "path is a list"),
    (["Transformer"], "module 0"),
    ([None], "module 0"),
    ([], "not a list of modules"),
    ({"type": "x.Transformer", "path": ""}, "not a list of modules"),
]


@pytest.mark.parametrize(("rows", "word"), MODULE_ROWS)
def test_modules_json_names_the_row(folder: Path, rows: Any, word: str) -> None:
    (folder / "modules.json").write_text(json.dumps(rows))
    refused(folder, "modules.json", word)


def test_other_settings_name_their_key(folder: Path) -> None:
    for name, keys, word in (
        ("sentence_bert_config.json", {"max_seq_length": "64"}, "max_seq_length"),
        ("sentence_bert_config.json", {"max_seq_length": -5}, "max_seq_length"),
        ("sentence_bert_config.json", {"max_seq_length": [1]}, "max_seq_length"),
        ("config_sentence_transformers.json", {"prompts": ["ask: "]}, "prompts"),
        ("config_sentence_transformers.json", {"prompts": {"query": 5}}, "query"),
        ("config_sentence_transformers.json", {"prompts": {"query": "\ud800"}}, "surrogate"),
        ("config_sentence_transformers.json", {"default_prompt_name": {}}, "default_prompt_name"),
        ("config_sentence_transformers.json", {"default_prompt_name": "none_such"}, "default_prompt_name"),
        ("1_Pooling/config.json", {"pooling_mode": 7}, "pooling_mode"),
        ("1_Pooling/config.json", {"pooling_mode": [{}]}, "pooling_mode"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "pooling_mode"),
        ("2_Dense/config.json", {"activation_function": 3}, "activation_function"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "activation"),
        ("2_Dense/config.json", {"activation_function": "my_module.Identity"}, "activation Identity is not supported"),
        ("2_Dense/config.json", {"activation_function": "Identity"}, "activation Identity is not supported"),
    ):
        before = (folder / name).read_text()
        change(folder / name, **keys)
        refused(folder, name, word)
        (folder / name).write_text(before)


def test_a_length_without_room_for_a_text(folder: Path) -> None:
    for name, key, value in (
        ("sentence_bert_config.json", "max_seq_length", 2),
        ("sentence_bert_config.json", "max_seq_length", None),  # then the tokenizer's
        ("tokenizer_config.json", "model_max_length", 1),
    ):
        change(folder / name, **{key: value})
        if value:
            refused(folder, f"is {value} tokens", "special tokens take 2")


def test_a_pooling_without_settings_is_not_taken_for_mean(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").unlink()
    refused(folder, "1_Pooling/config.json is missing")


# Values that a key may not have, some with what is said of them in the place of the key.
DECODER_KEYS: dict[str, list[Any]] = {
    "num_key_value_heads": [(3, "4 heads cannot share 3 key/value heads"), -2, "2", 0],
    "num_attention_heads": [0, "4", (5, "5 heads cannot share 2 key/value heads")],
    "head_dim": [(7, "heads of width 7"), (1, "heads of width 1;"), -8, "8", (10**9, "heads of width 1000000000")],
    "rope_parameters": [
        5, ({"rope_type": []}, "rope_type is a list"), {"rope_type": "llama3"}, ({"rope_theta": -1.0}, "rope_theta is -1.0"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
    ],
    "rms_norm_eps": ["x", float("inf")],
    "attention_bias": ["no", 5],
    "tie_word_embeddings": ["yes"],
    "layer_types": [5, ["sliding_attention"]],
    "num_hidden_layers": [10**8, 0],
}  # fmt: skip


@pytest.mark.parametrize("key", DECODER_KEYS)
def test_a_decoder_s_config_json(tmp_path: Path, key: str) -> None:
    folder = save_encoder(make_decoder(), tmp_path / "model")
    before = (folder / "config.json").read_text()
    for case in DECODER_KEYS[key]:
        value, said = case if isinstance(case, tuple) else (case, key)
        (folder / "config.json").write_text(before)
        change(folder / "config.json", **{key: value})
        refused(folder, f"config.json: {said}")


@pytest.mark.parametrize(("pooling", "kind"), [("avg_last2", "WeightedLayerPooling"), ("max_last2", "LayerPooling")])
def test_layers_that_the_model_does_not_give_its_pooler(tmp_path: Path, pooling: str, kind: str) -> None:
    folder = save_encoder(replace(make_encoder(), pooling=pooling), tmp_path / "model")
    assert jdistill.load(str(folder)).pooling == pooling
    for value in (..., False):
        change(folder / "config.json", output_hidden_states=value)
        refused(folder, "config.json: output_hidden_states is not true", kind)


def test_texts_that_are_cut_or_filled_by_their_role_are_refused(folder: Path) -> None:
    path = folder / "sentence_bert_config.json"
    options: list[tuple[str, Any]] = [
        ("query_length", 16),
        ("document_length", 300),
        ("query_expansion", {"strategy": "fixed", "length": 32}),
        ("processing_kwargs", {"text": {"max_length": 8}}),
        ("processing_kwargs", {"common": {"padding": "max_length"}}),
        ("processing_kwargs", ["text"]),
        ("modality_config", "text"),
    ]
    before = path.read_text()
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    for key, value in options:
        change(path, **{key: value})
        refused(folder, f"sentence_bert_config.json: {key}", *(["st:SOURCE"] if isinstance(value, dict | int) else []))
        path.write_text(before)
    change(path, query_length=None, processing_kwargs={"image": {"size": 8}, "text": {}})
    jdistill.load(str(folder))
