"""The graph with weights in float16: each is the rounded one, its vectors are as near as that, and it is half as large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import onnx
import pytest
from conftest import make_decoder, make_encoder, save_encoder, sentences
from modernbert_setting import make_modernbert
from t5_setting import make_sentence_t5

from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.export import onnx_forms
from jdistill.export.onnx import storage
from jdistill.export.targets import add_form

MODELS: dict[str, Callable[[], Encoder]] = {
    "bert": make_encoder,
    "decoder": make_decoder,
    "modernbert": make_modernbert,
    "t5": make_sentence_t5,
}


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_weights_are_rounded_and_vectors_near(
    name: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(storage, "INLINE_BYTES", 4000)
    model = MODELS[name]()
    folder = save_encoder(model, tmp_path / "out")
    whole = onnx_forms.write(model, folder)
    size = sum(path.stat().st_size for path in storage.graph_files(whole))
    graph = add_form(model, folder, "onnx-float16")
    assert graph.name == "model_fp16.onnx" and whole.is_file()
    assert (len(storage.graph_files(graph)) > 1) == large
    onnx.checker.check_model(graph)
    exact, vectors = (onnx_forms.encode(model, path, sentences(12)) for path in (whole, graph))
    assert np.abs(exact - vectors).max() < 8 * np.finfo(np.float16).eps * np.abs(exact).max()
    before, after = (
        {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
        for path in (whole, graph)
    )
    for weight, array in before.items():
        if array.dtype != np.float32 or array.nbytes < 1024:
            np.testing.assert_array_equal(after[weight], array)
        else:
            np.testing.assert_array_equal(after[f"{weight}_float16"], array.astype(np.float16))
    kept = sum(
        np.prod(tensor.dims) * 4
        for tensor in onnx.load(whole).graph.initializer
        if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims) * 4 < 1024
    )
    smaller = sum(path.stat().st_size for path in storage.graph_files(graph))
    assert smaller < 0.5 * size + kept + 60_000 + 2 * storage.ALIGNMENT * large * len(
        onnx.load(whole).graph.initializer
    )


def test_no_float32_graph_is_left_where_there_was_none(tmp_path: Path) -> None:
    model = make_encoder()
    add_form(model, save_encoder(model, tmp_path / "out"), "onnx-float16")
    assert [path.name for path in (tmp_path / "out" / "onnx").iterdir()] == ["model_fp16.onnx"]


def test_a_weight_that_float16_lacks_is_refused(tmp_path: Path) -> None:
    model = make_encoder()
    params = jax.tree.map(np.array, model.params)
    params["layer_0"]["up"]["kernel"][0, 0] = 1e5
    wild = replace(model, params=params)
    folder = save_encoder(wild, tmp_path / "out")
    with pytest.raises(UserError, match="holds numbers above 65504, which float16 has not"):
        add_form(wild, folder, "onnx-float16")
    assert not list(folder.glob("onnx/*"))
