"""int8 graphs: size, closeness and refusal; the ONNX backend that scores them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import make_encoder, sentences

import jdistill
from jdistill import export as exporter
from jdistill import onnx_encoder
from jdistill.errors import UserError
from jdistill.export import export, quantized
from jdistill.index import unit_rows


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from conftest import real_teacher_folder

    model = jdistill.load(str(real_teacher_folder()))
    folder = tmp_path_factory.mktemp("minilm") / "export"
    export(model, folder)
    quantized(model, folder, "int8", [])
    return folder


def test_int8_is_a_quarter_as_large_and_close(minilm: Path) -> None:
    assert [path.name for path in (minilm / "onnx").iterdir()] == ["model_int8.onnx"]
    model, int8 = jdistill.load(str(minilm)), onnx_encoder.load(str(minilm), "onnx/model_int8.onnx")
    assert int8.num_bytes < 0.3 * (minilm / "model.safetensors").stat().st_size and int8.dim == 384
    texts = ["A man is playing a guitar.", "Someone plays the guitar.", "The stock market fell.", *sentences(40)]
    ours, theirs = model.encode(texts), int8.encode(texts, batch_size=16)
    assert (unit_rows(ours) * unit_rows(theirs)).sum(1).mean() > 0.985
    assert theirs[0] @ theirs[1] > 0.6 > theirs[0] @ theirs[2]


def test_the_float_graph_by_the_onnx_backend_equals_flax(tmp_path: Path) -> None:
    model = make_encoder()
    export(model, tmp_path / "out", onnx=True)
    texts = sentences(30)
    np.testing.assert_allclose(
        onnx_encoder.load(str(tmp_path / "out")).encode(texts, batch_size=7), model.encode(texts), atol=1e-5
    )
    with pytest.raises(UserError, match="has no onnx/model_int8.onnx; python -m jdistill.export"):
        onnx_encoder.load(str(tmp_path / "out"), "onnx/model_int8.onnx")


def test_a_calibrated_graph_and_one_that_strays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_encoder()
    export(model, tmp_path / "out", onnx=True)
    monkeypatch.setattr(exporter, "LEAST_COSINE", 0.9)
    path = quantized(model, tmp_path / "out", "int8-calibrated", sentences(64))
    assert path.name == "model_int8_calibrated.onnx"
    assert sorted(p.name for p in path.parent.iterdir()) == ["model.onnx", path.name]
    found = onnx_encoder.load(str(tmp_path / "out"), f"onnx/{path.name}").encode(sentences(20))
    assert (unit_rows(found) * unit_rows(model.encode(sentences(20)))).sum(1).mean() > 0.9
    monkeypatch.setattr(exporter, "LEAST_COSINE", 1.01)
    with pytest.raises(UserError, match="mean cosine of 0.9.* below 1.01; nothing was written"):
        quantized(model, tmp_path / "out", "int8", [])
    assert not (path.parent / "model_int8.onnx").exists()
    assert (
        exporter.main(["--workdir", str(tmp_path), "--out", str(tmp_path / "x"), "--quantize", "int8-calibrated"]) == 2
    )
