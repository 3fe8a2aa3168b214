"""Model folders that a stranger wrote: what is broken, lies, or reaches out of its folder is refused in one line that names it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_decoder, make_encoder, save_encoder
from safetensors.numpy import load_file, save_file

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.formats.interaction import remove_interaction
from jdistill.encoder.pair_scorer import load_pair_scorer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a projection, Normalize and a prompt."""
    rng = np.random.default_rng(0)
    dense = {"kernel": rng.normal(size=(32, 16)).astype(np.float32), "bias": np.zeros(16, np.float32)}
    model = replace(make_encoder(), dense=(dense,), dense_activations=("Tanh",), prompts={"query": "ask: "})
    return save_encoder(model, tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to be broken."""
    return shutil.copytree(whole, tmp_path / "model")


def refused(folder: Path, *words: str) -> str:
    """The one line of the refusal, which holds the words."""
    with pytest.raises(UserError) as caught:
        jdistill.load(str(folder))
    message = str(caught.value)
    assert "\n" not in message, message
    for word in words:
        assert word in message, message
    return message


def change(path: Path, **keys: Any) -> None:
    """Changes keys of a JSON object; ... takes one out."""
    content = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def test_the_whole_folder_loads(folder: Path) -> None:
    model = jdistill.load(str(folder))
    assert model.dim == 16 and model.normalize and model.prompts == {"query": "ask: "}


def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "vocab.txt").unlink(missing_ok=True)
    refused(folder, "no tokenizer", "tokenizer.json", "vocab.txt")


def test_merges_alone_are_no_tokenizer(folder: Path) -> None:
    for path in folder.glob("*token*"):
        path.unlink()
    (folder / "vocab.json").write_text("{}")
    refused(folder, "no tokenizer")


def test_a_vocabulary_of_a_few_tokens_for_a_large_table(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]))
    refused(folder, "30522 rows", "do not belong together")


def test_a_padded_table_is_read(folder: Path) -> None:
    # 128 rows that no token has, as many models have them.
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "word_embeddings" in name)
    tensors[name] = np.concatenate([tensors[name], np.zeros((128, 32), np.float32)])
    save_file(tensors, folder / "model.safetensors")
    change(folder / "config.json", vocab_size=30522 + 128)
    assert jdistill.load(str(folder)).config.vocab_size == 30650


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


def test_a_pipe_in_place_of_a_file_does_not_hang(folder: Path) -> None:
    for name in ("config.json", "modules.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        refused(folder, name, "pipe")


def test_a_file_is_no_folder_of_a_model(folder: Path) -> None:
    refused(folder / "model.safetensors", "no folder of a model")
    (folder / "vocab.txt").unlink(missing_ok=True)
    os.mkfifo(folder / "vocab.txt")
    refused(folder, "vocab.txt is a pipe")


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


@pytest.mark.parametrize("path", ["..", "../other", "1_Pooling/../../other", "/OTHER", "link", "a\0b", "x" * 5000])
def test_modules_json_does_not_lead_out_of_its_folder(folder: Path, whole: Path, path: str) -> None:
    other = shutil.copytree(whole, folder.parent / "other")
    (folder / "link").symlink_to(other, target_is_directory=True)
    rows = json.loads((folder / "modules.json").read_text())
    rows[0]["path"] = path.replace("/OTHER", str(other))
    (folder / "modules.json").write_text(json.dumps(rows))
    refused(folder, "modules.json", "leads out of the folder" if "\0" not in path else "path")


def test_a_folder_of_links_is_read_as_the_hub_s_cache_has_it(folder: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "cache" / "blobs", tmp_path / "cache" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    for i, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        shutil.copyfile(path, blobs / str(i))
        link = snapshot / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blobs / str(i), link.parent))
    assert jdistill.load(str(snapshot)).dim == 16
    # A user's own folder of links to the parts of another.
    mine = tmp_path / "mine"
    mine.mkdir()
    for path in folder.iterdir():
        (mine / path.name).symlink_to(path)
    assert jdistill.load(str(mine)).dim == 16


def test_removing_a_module_never_removes_what_lies_elsewhere(folder: Path) -> None:
    thesis = folder.parent / "thesis"
    thesis.mkdir()
    (thesis / "thesis.txt").write_text("years of work")
    rows = json.loads((folder / "modules.json").read_text())
    for path in ("../thesis", str(thesis), ""):
        (folder / "modules.json").write_text(json.dumps([*rows, {"type": "interaction.Interaction", "path": path}]))
        with pytest.raises(UserError, match=r"modules\.json"):
            remove_interaction(folder)
    assert (thesis / "thesis.txt").is_file() and (folder / "config.json").is_file()


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
    ):
        before = (folder / name).read_text()
        change(folder / name, **keys)
        refused(folder, name, word)
        (folder / name).write_text(before)


def test_a_length_without_room_for_a_text(folder: Path) -> None:
    for name, key, value in (
        ("sentence_bert_config.json", "max_seq_length", 2),
        ("tokenizer_config.json", "model_max_length", 1),
    ):
        before = (folder / name).read_text()
        change(folder / name, **{key: value})
        refused(folder, f"is {value} tokens", "special tokens take 2")
        (folder / name).write_text(before)


def test_a_pooling_without_settings_is_not_taken_for_mean(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").unlink()
    refused(folder, "1_Pooling/config.json is missing")


def test_tensors_of_modules_are_held_against_the_model(folder: Path) -> None:
    path = folder / "2_Dense" / "model.safetensors"
    good = load_file(path)
    weight = good["linear.weight"]
    for tensors, word in (
        ({"other": weight}, "linear.weight is missing"),
        ({"linear.weight": weight[:, :5]}, "linear.weight has shape"),
        ({"linear.weight": weight[0]}, "linear.weight has shape"),
        (good | {"linear.bias": np.zeros(3, np.float32)}, "linear.bias has shape"),
        ({"linear.weight": weight.astype(np.int32)}, "linear.weight holds int32"),
    ):
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path)
        refused(folder, "2_Dense/model.safetensors", word)
    path.write_bytes(b"\xff" * 8 + b"{}")
    refused(folder, "2_Dense/model.safetensors")
    path.unlink()
    refused(folder, "2_Dense/model.safetensors is missing")


def test_shards_lie_in_the_folder(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    for content, word in (
        ({"weight_map": {"a": "../other/model.safetensors"}}, "weight_map"),
        ({"weight_map": {"a": "/etc/passwd"}}, "weight_map"),
        ({"weight_map": {"a": 5}}, "weight_map"),
        ({"weight_map": []}, "weight_map"),
        ({"weight_map": {}}, "weight_map"),
        ({}, "weight_map"),
        ([], "index.json"),
    ):
        index.write_text(json.dumps(content))
        refused(folder, "model.safetensors.index.json", word)


def test_code_in_a_folder_is_never_run(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').write('yes')\nclass Theirs: pass\n"
    for name in ("modeling_theirs.py", "tokenization_theirs.py", "__init__.py"):
        (folder / name).write_text(code)
    maps = {"AutoConfig": "modeling_theirs.Theirs", "AutoModel": "modeling_theirs.Theirs"}
    change(folder / "config.json", auto_map=maps)
    tokenizer = ["tokenization_theirs.Theirs", "tokenization_theirs.Theirs"]
    for kind in ("BertTokenizer", "TheirsTokenizer"):
        change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": tokenizer}, tokenizer_class=kind)
        try:
            jdistill.load(str(folder))
        except UserError as error:
            assert "\n" not in str(error)
        assert not ran.exists()


def test_pickles_are_never_opened(folder: Path, tmp_path: Path) -> None:
    import pickle

    class Opened:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(tmp_path / "opened"), "w")

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Opened()))
    refused(folder, "pytorch_model.bin alone is not read")
    assert not (tmp_path / "opened").exists()


DECODER_KEYS = [
    ("num_key_value_heads", [3, -2, "2", 0]),
    ("num_attention_heads", [0, "4", 5]),
    ("head_dim", [7, 1, -8, "8", 10**9]),
    (
        "rope_parameters",
        [5, {"rope_type": []}, {"rope_type": "llama3"}, {"rope_theta": -1.0}, {"rope_theta": float("nan")}],
    ),
    ("rms_norm_eps", ["x", float("inf")]),
    ("attention_bias", ["no", 5]),
    ("tie_word_embeddings", ["yes"]),
    ("layer_types", [5, ["sliding_attention"]]),
    ("num_hidden_layers", [10**8, 0]),
]


@pytest.mark.parametrize(("key", "values"), DECODER_KEYS, ids=[key for key, _ in DECODER_KEYS])
def test_a_decoder_s_config_json(tmp_path: Path, key: str, values: list[Any]) -> None:
    folder = save_encoder(make_decoder(), tmp_path / "model")
    before = (folder / "config.json").read_text()
    for value in values:
        (folder / "config.json").write_text(before)
        change(folder / "config.json", **{key: value})
        refused(folder, str(folder))


def test_an_interaction_module_that_does_not_fit(folder: Path) -> None:
    rows = json.loads((folder / "modules.json").read_text())
    module = folder / "9_Interaction"
    module.mkdir()
    rows.append({"type": "interaction.Interaction", "path": module.name})
    (folder / "modules.json").write_text(json.dumps(rows))
    for settings in (None, "[]", "{}", '{"embedding_dimension": 16, "hidden": 1000000000, "interaction": "dual"}'):
        if settings:
            (module / "config.json").write_text(settings)
        save_file({"first.weight": np.zeros((4, 32), np.float32)}, module / "model.safetensors")
        with pytest.raises(UserError, match="9_Interaction"):
            load_pair_scorer(str(folder))
