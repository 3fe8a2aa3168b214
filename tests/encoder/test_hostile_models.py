"""Model folders that a stranger wrote: a missing, damaged or foreign file, code, a way out of the folder end in one line."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder
from hostile_setting import change, refused, write_whole
from safetensors.numpy import load_file, save_file

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.formats.interaction import remove_interaction
from jdistill.encoder.formats.tokenizer import load_tokenizer
from jdistill.encoder.pair_scorer import load_pair_scorer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to be broken."""
    return shutil.copytree(whole, tmp_path / "model")


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


@pytest.mark.parametrize(
    ("kind", "name", "packages"),
    [
        ("llama", "tokenizer.model", "sentencepiece protobuf"),
        ("xlm-roberta", "sentencepiece.bpe.model", "sentencepiece protobuf"),
        ("mistral", "tekken.json", "mistral-common"),
    ],
)
def test_a_tokenizer_that_another_library_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, packages: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    (tmp_path / name).write_text("{}")
    installed = importlib.util.find_spec
    lacking = ("sentencepiece", "mistral_common")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name in lacking else installed(name, *of)
    )
    with pytest.raises(
        UserError, match=f"pip install {packages}. Or convert it once .*writes tokenizer.json"
    ) as caught:
        load_tokenizer(tmp_path, make_encoder().config)
    assert "\n" not in str(caught.value)


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
    (folder / "model.safetensors").unlink()  # which would be read in their place
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
