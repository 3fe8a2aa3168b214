"""Weights of an ONNX graph in a file beside it, as above 2 GiB: the same vectors, moved, damaged, quantised and exported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from albert_setting import make_albert
from conftest import make_decoder, make_encoder, random_params, save_encoder, sentences
from modernbert_setting import make_modernbert
from mpnet_setting import make_mpnet
from nomicbert_setting import make_nomicbert
from onnx import numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from onnx_setting import ask_cosine
from t5_setting import make_sentence_t5

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.export.card import write_card
from jdistill.export.folder import export
from jdistill.export.onnx import graph, runtime, storage
from jdistill.export.onnx_forms import graph_inputs
from jdistill.export.targets import add_form
from jdistill.models.bilstm import BilstmConfig

BOTH = ["model.onnx", "model.onnx_data"]


def make_bilstm() -> Encoder:
    config = BilstmConfig(30522, 12, 16)
    return replace(make_encoder(), config=config, params=random_params(config), pooling="max", max_length=32)


FAMILIES: dict[str, Callable[[], Encoder]] = {
    "bert": make_encoder,
    "electra": lambda: make_encoder(model_type="electra", embedding_size=12),
    "mpnet": make_mpnet,
    "modernbert": make_modernbert,
    "nomic_bert": make_nomicbert,
    "albert": make_albert,
    "t5": make_sentence_t5,
    "bilstm": make_bilstm,
    "decoder": make_decoder,
}


def in_folder(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "onnx").iterdir())


def external(path: Path) -> list[ExternalDataInfo]:
    """Where the weights of a graph lie, of those that are not in its own file."""
    tensors = onnx.load(path, load_external_data=False).graph.initializer
    return [ExternalDataInfo(tensor) for tensor in tensors if uses_external_data(tensor)]


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "INLINE_BYTES", 10_000)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoder, Path]:
    """A BERT and its folder, whose graph has a data file."""
    folder = save_encoder(model := make_encoder(), tmp_path_factory.mktemp("saved") / "model")
    graph.save_graph(folder, inline_bytes=0)
    return model, folder


@pytest.mark.parametrize("family", FAMILIES)
def test_the_vectors_are_those_of_the_graph_in_one_file_wherever_the_folder_lies(tmp_path: Path, family: str) -> None:
    folder = save_encoder(model := FAMILIES[family](), tmp_path / "model")
    tokens = graph_inputs(model, [*sentences(20), "", "a long text " * 40])
    outside = graph.save_graph(folder, inline_bytes=0)
    assert in_folder(folder) == BOTH
    assert outside.stat().st_size < 0.05 * storage.data_file(outside).stat().st_size
    found = graph.run_graph(outside, tokens)
    shutil.move(folder, tmp_path / "elsewhere")
    moved = tmp_path / "elsewhere" / "onnx" / "model.onnx"
    np.testing.assert_array_equal(graph.run_graph(moved, tokens), found)
    inside = graph.save_graph(tmp_path / "elsewhere")
    assert in_folder(tmp_path / "elsewhere") == BOTH[:1], "the older graph's weights are taken away"
    np.testing.assert_array_equal(graph.run_graph(inside, tokens), found)


def test_weights_lie_in_one_relative_file_on_whole_pages_and_shapes_in_the_graph(saved: tuple[Encoder, Path]) -> None:
    path = saved[1] / "onnx" / "model.onnx"
    outside = external(path)
    assert {info.location for info in outside} == {"model.onnx_data"}
    assert all(info.offset % 4096 == 0 and info.length >= storage.LEAST_BYTES for info in outside)
    inside = [tensor for tensor in onnx.load(path, load_external_data=False).graph.initializer if tensor.raw_data]
    assert inside and all(numpy_helper.to_array(tensor).nbytes < storage.LEAST_BYTES for tensor in inside)


def test_the_limit_is_one_of_bytes_of_constants(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "model")
    total = sum(value.nbytes for _, value in graph.build_graph(folder)[1])
    for limit, names in ((total, BOTH[:1]), (total - 1, BOTH), (total, BOTH[:1])):
        graph.save_graph(folder, inline_bytes=limit)
        assert in_folder(folder) == names


@pytest.mark.parametrize("left", [None, 0, 2_000_000, -1], ids=["missing", "empty", "half", "one byte short"])
def test_a_data_file_that_is_missing_or_cut_off_is_named(
    saved: tuple[Encoder, Path], tmp_path: Path, left: int | None
) -> None:
    shutil.copytree(saved[1], tmp_path / "copy")
    data = tmp_path / "copy" / "onnx" / "model.onnx_data"
    size = data.stat().st_size
    if left is None:
        data.unlink()
    else:
        os.truncate(data, left % size)
    told = "is missing" if left is None else f"was cut off, {left % size:,} bytes of {size:,}"
    for load in (
        lambda: runtime.load_onnx_encoder(str(tmp_path / "copy")),
        lambda: graph.session(data.with_name("model.onnx")),
    ):
        with pytest.raises(UserError, match=f"model.onnx_data {told}: model.onnx keeps its weights there; copy both"):
            load()


def test_what_fails_on_the_way_leaves_the_older_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "model")
    graph.save_graph(folder, inline_bytes=0)
    before = {path.name: path.read_bytes() for path in (folder / "onnx").iterdir()}

    def cannot(*_: object, **__: object) -> None:
        raise onnx.checker.ValidationError("no such operator")

    monkeypatch.setattr(onnx.checker, "check_model", cannot)
    for limit in (0, None):
        with pytest.raises(onnx.checker.ValidationError, match="no such operator"):
            graph.save_graph(folder, inline_bytes=limit)
        assert {path.name: path.read_bytes() for path in (folder / "onnx").iterdir()} == before


def test_every_form_of_an_export_is_checked_with_its_data_file_and_lists_it(
    tmp_path: Path, small_limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = make_encoder(), tmp_path / "out"

    def add(folder: Path) -> None:
        assert add_form(model, folder, "onnx-int8").name == "model_quint8_avx2.onnx"
        write_card(tmp_path, folder)

    ask_cosine(monkeypatch, 0.9)
    checks = export(model, out, onnx=True, add=[add])
    assert checks["ONNX Runtime"] < 1e-5
    listed = files.read_seal(out, "export")
    assert listed and {f"onnx/{name}" for name in in_folder(out)} <= listed["files"].keys()
    assert in_folder(out) == [*BOTH, "model_quint8_avx2.onnx", "model_quint8_avx2.onnx_data"]
    card = (out / "README.md").read_text()
    for name in ("model", "model_quint8_avx2"):
        assert f"`onnx/{name}.onnx` keeps its weights in `onnx/{name}.onnx_data`" in card
    found = runtime.load_onnx_encoder(str(out))
    assert found.num_bytes > (out / "model.safetensors").stat().st_size
    np.testing.assert_allclose(found.encode(sentences(20)), model.encode(sentences(20)), atol=1e-5)
    (out / "onnx" / "model.onnx_data").unlink()
    assert files.damage(out, "export") == ["onnx/model.onnx_data is missing"]


def test_int8_of_a_graph_with_a_data_file_gives_the_same_vectors(
    saved: tuple[Encoder, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, texts = saved[0], sentences(40)
    ask_cosine(monkeypatch, 0.9)
    vectors = {}
    for limit in (storage.INLINE_BYTES, 2_000_000, 10_000):  # all in one file; float32 outside alone; both outside
        monkeypatch.setattr(storage, "INLINE_BYTES", limit)
        folder = save_encoder(model, tmp_path / str(limit))
        forms = [add_form(model, folder, form, texts) for form in ("onnx-int8", "onnx-int8-calibrated")]
        names = [path.name for path in forms]
        assert in_folder(folder) == sorted([*names, *(f"{name}_data" for name in names if limit == 10_000)])
        vectors[limit] = [graph.run_graph(path, graph_inputs(model, texts)) for path in forms]
    first, *others = vectors.values()
    np.testing.assert_array_equal(others, [first, first])


def test_a_form_that_strays_leaves_no_data_file(
    tmp_path: Path, small_limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_encoder(model := make_encoder(), tmp_path / "model")
    ask_cosine(monkeypatch, 1.01)
    with pytest.raises(UserError, match="mean cosine"):
        add_form(model, folder, "onnx-int8")
    assert in_folder(folder) == []


def test_a_graph_made_elsewhere_is_saved_so_too(saved: tuple[Encoder, Path], tmp_path: Path) -> None:
    path = saved[1] / "onnx" / "model.onnx"
    tokens = graph_inputs(saved[0], sentences(20))
    for limit, names in ((0, BOTH), (None, BOTH[:1])):
        out = tmp_path / "onnx" / "model.onnx"
        storage.save_model(onnx.load(path), out, limit)
        assert in_folder(tmp_path) == names
        assert all(info.offset % 4096 == 0 for info in external(out))
        np.testing.assert_array_equal(graph.run_graph(out, tokens), graph.run_graph(path, tokens))
