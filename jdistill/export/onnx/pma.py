"""PMA (D2LLM's pooling by multihead attention) as ONNX nodes, from an exported folder's pma_pooling module."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jdistill.core.json_files import read_json
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models.onnx_nodes import Graph, Weights

TORCH_EPS = 1e-5  # torch's LayerNorm


def pma_nodes(graph: Graph, folder: Path, tokens: str, width: int) -> str:
    """tokens [batch * sequence, width] to vectors [batch, width]; reads the graph's "mask" [batch, sequence] and "shape"."""
    op, weights = graph.op, Weights(folder, read_tensors(folder))
    heads = int(read_json(folder / "config.json")["heads"])

    def linear(name: str, x: str) -> str:
        kernel, bias = weights.take(f"{name}.weight", width, width), weights.take(f"{name}.bias", width)
        return graph.gemm(x, f"{folder.name}.{name}", kernel, bias)

    def norm(name: str, x: str) -> str:
        parts = [
            graph.constant(weights.take(f"{name}.{part}", width), f"{folder.name}.{name}.{part}")
            for part in ("weight", "bias")
        ]
        return op("LayerNormalization", x, *parts, axis=-1, epsilon=TORCH_EPS)

    def by_head(x: str) -> str:
        return op("Reshape", x, op("Concat", "shape", [heads, width // heads], axis=0))

    learnt = weights.take("query", width)
    asked = weights.take("to_query.weight", width, width) @ learnt + weights.take("to_query.bias", width)
    query = (asked * (width // heads) ** -0.5).reshape(heads, -1).astype(np.float32)
    scores = op(
        "ReduceSum", op("Mul", by_head(linear("key", tokens)), query), [-1], keepdims=0
    )  # [batch, sequence, heads]
    mask = op("Unsqueeze", "mask", [2])
    low = op("Mul", op("Sub", np.float32(1.0), mask), np.float32(-1e30))
    share = op("Mul", op("Softmax", op("Add", scores, low), axis=1), mask)  # a text without a token has none
    value = by_head(linear("value", tokens))
    mixed = op("ReduceSum", op("Mul", value, op("Unsqueeze", share, [3])), [1], keepdims=0)
    h = norm("norm_1", op("Add", linear("out", op("Reshape", mixed, [-1, width])), learnt))
    return norm("norm_2", op("Add", h, op("Relu", linear("feed", h))))
