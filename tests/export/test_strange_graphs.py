"""Graphs that we did not write, beside a model's files: what `evaluate --backend=onnx` says of one that gives no vectors of its texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import make_encoder, save_encoder
from onnx import TensorProto, helper

from jdistill.core.errors import UserError
from jdistill.export.onnx import runtime


def write_graph(path: Path, inputs: tuple[str, ...], output: str, width: int) -> None:
    """Ones of [batch, width] out of ids, which is as much as a graph's outside shows."""
    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs]
    found = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", width])
    ones = onnx.numpy_helper.from_array(np.ones((1, width), np.float32), "ones")
    zero = onnx.numpy_helper.from_array(np.zeros(1, np.int64), "first")
    nodes = [
        helper.make_node("Gather", [inputs[0], "first"], ["column"], axis=1),
        helper.make_node("Cast", ["column"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["numbers", "numbers"], ["nothing"]),
        helper.make_node("Add", ["nothing", "ones"], [output]),
    ]
    graph = helper.make_graph(nodes, "strange", ids, [found], [ones, zero])
    path.parent.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.mark.parametrize(
    ("inputs", "output", "width", "told"),
    [
        (("input_ids", "attention_mask"), "last_hidden_state", 32, "gives last_hidden_state, not sentence_embedding"),
        (
            ("input_ids", "attention_mask"),
            "sentence_embedding",
            16,
            "gives vectors of 16 numbers, and the model beside it of 32",
        ),
        (("input_ids", "position_ids"), "sentence_embedding", 32, "asks for position_ids; what is known are input_ids"),
    ],
)
def test_what_a_graph_lacks_is_said(
    inputs: tuple[str, ...], output: str, width: int, told: str, tmp_path: Path
) -> None:
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "model")
    write_graph(folder / "onnx" / "model.onnx", inputs, output, width)
    with pytest.raises(UserError, match=rf"--model={folder}: onnx/model.onnx {told}"):
        runtime.load_onnx_encoder(str(folder))


def test_one_that_can_be_asked_is_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    folder = save_encoder(make_encoder(num_layers=1), tmp_path / "model")
    path = folder / "onnx" / "model.onnx"
    write_graph(path, ("input_ids", "attention_mask"), "sentence_embedding", 32)
    assert runtime.load_onnx_encoder(str(folder)).encode(["a river", "a stone"]).shape == (2, 32)
    path.write_bytes(b"no graph")
    with pytest.raises(UserError, match="onnx/model.onnx is no graph that ONNX Runtime reads: .*Protobuf"):
        runtime.load_onnx_encoder(str(folder))
