"""The ONNX nodes of ModernBERT, from the files of a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jdistill.models.architecture import ReadTensors
from jdistill.models.modernbert.config import GLOBAL, LOCAL, ModernBertConfig
from jdistill.models.onnx_nodes import ONNX_ACTIVATIONS, Graph, OnnxBody, Weights
from jdistill.models.rotary_onnx import hidden_scores, rotary_attention, shape_and_mask, turn_of


def onnx_states(graph: Graph, config: ModernBertConfig, root: Path, read: ReadTensors) -> OnnxBody:
    """All hidden states of the encoder in the folder root."""
    states = modernbert_nodes(graph, config, Weights(root, read(root), "model."))
    return OnnxBody(states, config.hidden_size, config.model_type)


def modernbert_nodes(graph: Graph, config: ModernBertConfig, weights: Weights) -> list[str]:
    """Adds `mask`, float32 [batch, sequence], and `shape`.

    Returns: all hidden states, [batch * sequence, hidden], the last after the final norm.
    """
    op, hidden, inner, c = graph.op, config.hidden_size, config.intermediate_size, config

    def parts(
        name: str, bias: bool, out: int, *into: int
    ) -> list[np.ndarray]:  # a weight and, if there is one, its bias
        return [weights.take(f"{name}.weight", out, *into), *([weights.take(f"{name}.bias", out)] if bias else [])]

    def norm(x: str, name: str) -> str:
        both = zip(("weight", "bias"), parts(name, c.norm_bias, hidden), strict=False)
        constants = [graph.constant(value, f"{name}.{kind}") for kind, value in both]
        return op("LayerNormalization", x, *constants, axis=-1, epsilon=c.norm_eps)

    def attention(x: str, name: str, kind: str) -> str:
        kernel, *bias = parts(f"{name}.Wqkv", c.attention_bias, 3 * hidden, hidden)
        mixed = rotary_attention(graph, x, f"{name}.Wqkv", kernel, bias, c.num_heads, turn[kind], hide[kind])
        return graph.gemm(mixed, f"{name}.Wo", *parts(f"{name}.Wo", c.attention_bias, hidden, hidden))

    def feed_forward(x: str, name: str) -> str:
        wide = graph.gemm(x, f"{name}.Wi", *parts(f"{name}.Wi", c.mlp_bias, 2 * inner, hidden))
        activated = ONNX_ACTIVATIONS[c.activation](graph, op("Slice", wide, [0], [inner], [1]))
        gated = op("Mul", activated, op("Slice", wide, [inner], [2 * inner], [1]))
        return graph.gemm(gated, f"{name}.Wo", *parts(f"{name}.Wo", c.mlp_bias, hidden, inner))

    place, seen = shape_and_mask(graph)
    distance = op("Abs", op("Sub", op("Unsqueeze", place, [0]), op("Unsqueeze", place, [1])))
    near = op("LessOrEqual", distance, np.int64(c.reach))
    hide = {GLOBAL: hidden_scores(graph, seen), LOCAL: hidden_scores(graph, op("And", seen, near))}
    head = hidden // c.num_heads
    turn = {GLOBAL: turn_of(graph, place, c.global_theta, head), LOCAL: turn_of(graph, place, c.local_theta, head)}
    x = op("Gather", weights.take("embeddings.tok_embeddings.weight", c.vocab_size, hidden), "input_ids")
    x = norm(op("Reshape", x, [-1, hidden]), "embeddings.norm")
    states = [x]
    for i, kind in enumerate(c.layer_types):
        normed = norm(x, f"layers.{i}.attn_norm") if i else x
        x = op("Add", x, attention(normed, f"layers.{i}.attn", kind))
        x = op("Add", x, feed_forward(norm(x, f"layers.{i}.mlp_norm"), f"layers.{i}.mlp"))
        states.append(x)
    states[-1] = norm(x, "final_norm")
    return states
