"""Weights in a pytorch_model.bin: torch's reader of tensors alone gives them, and whatever else it holds is never run."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import sentences
from hostile_setting import refused, write_whole
from safetensors.numpy import load_file

import jdistill
from jdistill.core.errors import UserError
from jdistill.encoder.formats.pickled import load_pickled
from jdistill.encoder.formats.tensors import load_tensors, read_tensors
from jdistill.teachers.embeddings import open_teacher

torch = pytest.importorskip("torch", reason="needs the torch extra")


class Opens:
    """What, unpickled, makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whole(tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy whose weights are all in .bin files."""
    folder = shutil.copytree(whole, tmp_path / "model")
    for path in list(folder.rglob("model.safetensors")):
        tensors = {name: torch.from_numpy(tensor) for name, tensor in load_file(path).items()}
        torch.save(tensors, path.with_name("pytorch_model.bin"))
        path.unlink()
    return folder


def test_the_vectors_are_those_of_safetensors(whole: Path, folder: Path) -> None:
    assert not list(folder.rglob("*.safetensors")) and len(list(folder.rglob("pytorch_model.bin"))) == 2
    texts = sentences(10)
    np.testing.assert_array_equal(jdistill.load(str(folder)).encode(texts), jdistill.load(str(whole)).encode(texts))


def test_shards_and_other_types(whole: Path, folder: Path) -> None:
    expected = load_file(whole / "model.safetensors")
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    names = sorted(tensors)
    halves = {"pytorch_model-1.bin": names[:9], "pytorch_model-2.bin": names[9:]}
    for file, of_it in halves.items():
        kind = torch.bfloat16 if file.endswith("1.bin") else torch.float64
        torch.save({name: tensors[name].to(kind) for name in of_it} | {"ids": torch.arange(3)}, folder / file)
    (folder / "pytorch_model.bin").unlink()
    index = {"weight_map": {name: file for file, of_it in halves.items() for name in of_it}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    read = read_tensors(folder)
    assert sorted(read) == names and all(tensor.dtype == np.float32 for tensor in read.values())
    for name in names[:9]:
        np.testing.assert_array_equal(read[name], torch.from_numpy(expected[name]).bfloat16().float().numpy())
    for name in names[9:]:
        np.testing.assert_array_equal(read[name], expected[name])
    index["weight_map"][names[0]] = "../pytorch_model-1.bin"
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    refused(folder, "pytorch_model.bin.index.json", "a file's name is needed")


def test_safetensors_come_first(whole: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copy(whole / "model.safetensors", folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Opens(tmp_path / "ran")))
    jdistill.load(str(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", ["alone", "among tensors", "in torch's old form"])
def test_a_pickle_that_would_run_code_is_refused_and_does_not(folder: Path, tmp_path: Path, where: str) -> None:
    path, ran = folder / "pytorch_model.bin", tmp_path / "ran"
    if where == "alone":
        path.write_bytes(pickle.dumps(Opens(ran)))
    else:
        tensors = torch.load(path, weights_only=True)
        torch.save(tensors | {"more": Opens(ran)}, path, _use_new_zipfile_serialization=where == "among tensors")
    refused(folder, f"{path} is refused: torch reads from it tensors alone", "save it again with safetensors")
    with pytest.raises(UserError, match="cannot be loaded by sentence-transformers"):
        open_teacher(f"st:{folder}", 24, "float32")
    assert not ran.exists()
    pickle.loads(pickle.dumps(Opens(ran)))  # which shows that it would have
    assert ran.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([torch.zeros(3)], "it holds a list"),
        ({"state_dict": {"a": torch.zeros(3)}}, "no tensors by their names, or more"),
        ({"a": torch.arange(3)}, "no tensors by their names"),
        ({"a": torch.zeros(1).expand(1 << 40)}, "tells of 1,099,511,627,776 numbers"),
    ],
    ids=["list", "nested", "whole numbers", "more numbers than bytes"],
)
def test_what_is_not_tensors_by_their_names(tmp_path: Path, content: Any, words: str) -> None:
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=words):
        load_tensors(tmp_path / "model.safetensors")


def test_a_damaged_file_ends_in_one_line(folder: Path) -> None:
    path = folder / "pytorch_model.bin"
    content = path.read_bytes()
    for damaged in (b"", content[:100], content[: len(content) // 2], b"PK\x03\x04" + b"\0" * 50):
        path.write_bytes(damaged)
        refused(folder, "pytorch_model.bin is refused")


def test_without_torch_or_with_an_old_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "pytorch_model.bin"
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch", None)
        with pytest.raises(
            UserError, match=r"is a pickle, which may run code; .*pip install -e '.\[torch\]', or save it again"
        ):
            load_pickled(path)
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(UserError, match="torch 2.5.1.cpu could be led to run it; install 2.6 or newer"):
        load_pickled(path)
