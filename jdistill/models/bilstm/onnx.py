"""The ONNX nodes of word embeddings and a bidirectional LSTM, from an exported folder's own files."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from jdistill.core.json_files import read_json
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.onnx_nodes import Graph, OnnxBody, Weights

GATES = (0, 3, 1, 2)  # ONNX has input, output, forget, cell where torch has input, forget, cell, output


def onnx_states(graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
    """The states of all tokens [batch * sequence, 2H], zero in padding. Adds "mask", float32, and "shape"."""
    words_folder, lstm_folder = body[0][1], body[1][1]
    graph.op("Shape", "input_ids", name="shape")
    graph.op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask")
    settings = read_json(lstm_folder / "lstm_config.json")
    E = int(settings.get("embedding_dimension", settings.get("word_embedding_dimension")))
    H = int(settings["hidden_dim"])
    table = graph.constant(Weights(words_folder, read(words_folder)).tensors["emb_layer.weight"], "word_embeddings")
    x_LxBxE = graph.op("Transpose", graph.op("Gather", table, "input_ids"), perm=[1, 0, 2])
    tensors = Weights(lstm_folder, read(lstm_folder), "encoder.")

    def both(name: str, *shape: int) -> np.ndarray:
        """One of torch's tensors in both directions, its four gates in ONNX's order: [2, 4H, …]."""
        pair = np.stack([tensors.take(f"{name}_l0{suffix}", *shape) for suffix in ("", "_reverse")])
        by_gate = pair.reshape(2, 4, H, *shape[1:])[:, GATES]
        return np.ascontiguousarray(by_gate.reshape(2, *shape))

    kernels = both("weight_ih", 4 * H, E), both("weight_hh", 4 * H, H)
    biases = np.concatenate([both("bias_ih", 4 * H), both("bias_hh", 4 * H)], axis=1)
    # At least one token a text: a length of zero is not defined.
    counted = graph.op("ReduceSum", "mask", [1], keepdims=0)
    lengths = graph.op("Cast", graph.op("Max", counted, np.float32(1.0)), to=TensorProto.INT32)
    y_Lx2xBxH = graph.op(
        "LSTM",
        x_LxBxE,
        graph.constant(kernels[0], "lstm.input"),
        graph.constant(kernels[1], "lstm.recurrent"),
        graph.constant(biases, "lstm.bias"),
        lengths,
        direction="bidirectional",
        hidden_size=H,
    )
    y_BxLx2xH = graph.op("Transpose", y_Lx2xBxH, perm=[2, 0, 1, 3])
    return OnnxBody([graph.op("Reshape", y_BxLx2xH, [-1, 2 * H])], 2 * H, "bilstm")
