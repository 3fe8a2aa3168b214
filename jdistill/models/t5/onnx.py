"""The ONNX nodes of T5's encoder, from the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from jdistill.core.errors import UserError
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.onnx_nodes import ONNX_ACTIVATIONS, Graph, OnnxBody, Weights, hf_config
from jdistill.models.relative import onnx_distances
from jdistill.models.t5.config import encoder_tensors


def onnx_states(graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
    """All hidden states of the encoder in a folder."""
    root = body[0][1]
    config = _read(root)
    return OnnxBody(_nodes(graph, config, Weights(root, encoder_tensors(read(root)))), int(config.d_model), "t5")


def _read(root: Path) -> Any:
    """transformers' own reading of config.json, its defaults included."""
    config = hf_config(root)
    if config.dense_act_fn not in ONNX_ACTIVATIONS:
        raise UserError(
            f"{root}/config.json: activation {config.dense_act_fn!r} has no ONNX graph; supported: {', '.join(ONNX_ACTIVATIONS)}"
        )
    return config


def _nodes(graph: Graph, config: Any, weights: Weights) -> list[str]:
    """The encoder itself: adds `mask`, float32 [batch, sequence], and `shape`, and returns all hidden states, [batch * sequence,
    hidden], the last after the final norm."""
    op, hidden, inner, heads, head = graph.op, config.d_model, config.d_ff, config.num_heads, config.d_kv

    def linear(x: str, name: str, out: int, into: int) -> str:
        return graph.gemm(x, name, weights.take(f"{name}.weight", out, into))

    def norm(x: str, name: str) -> str:
        return graph.rms_norm(x, name, weights.take(f"{name}.weight", hidden), config.layer_norm_epsilon)

    def attention(x: str, name: str) -> str:
        kernel = np.concatenate([weights.take(f"{name}.{part}.weight", heads * head, hidden) for part in "qkv"])
        qkv = op(
            "Reshape", graph.gemm(x, f"{name}.qkv", kernel), op("Concat", "shape", np.array([3, heads, head]), axis=0)
        )
        qkv = op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (op("Gather", qkv, np.int64(part), axis=0) for part in range(3))
        scores = op("Add", op("MatMul", q, op("Transpose", k, perm=[0, 1, 3, 2])), bias)
        mixed = op("Transpose", op("MatMul", op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return linear(op("Reshape", mixed, [-1, heads * head]), f"{name}.o", hidden, heads * head)

    def feed_forward(x: str, name: str) -> str:
        activation = ONNX_ACTIVATIONS[config.dense_act_fn]
        if config.is_gated_act:
            gate = activation(graph, linear(x, f"{name}.wi_0", inner, hidden))
            wide = op("Mul", gate, linear(x, f"{name}.wi_1", inner, hidden))
        else:
            wide = activation(graph, linear(x, f"{name}.wi", inner, hidden))
        return linear(wide, f"{name}.wo", hidden, inner)

    op("Shape", "input_ids", name="shape")
    padding = op("Sub", np.float32(1), op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask"))
    hide = op("Mul", op("Unsqueeze", padding, [1, 2]), np.finfo(np.float32).min)
    rows, farthest = config.relative_attention_num_buckets, config.relative_attention_max_distance
    table = weights.take("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", rows, heads)
    bias = op("Add", onnx_distances(graph, table, rows, farthest), hide)
    x = op("Reshape", op("Gather", weights.take("shared.weight", config.vocab_size, hidden), "input_ids"), [-1, hidden])
    states = [x]
    for i in range(config.num_layers):
        name = f"encoder.block.{i}.layer"
        x = op("Add", x, attention(norm(x, f"{name}.0.layer_norm"), f"{name}.0.SelfAttention"))
        x = op("Add", x, feed_forward(norm(x, f"{name}.1.layer_norm"), f"{name}.1.DenseReluDense"))
        states.append(x)
    states[-1] = norm(x, "encoder.final_layer_norm")
    return states
