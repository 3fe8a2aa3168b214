"""The ONNX nodes of Llama-family decoders, from the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.decoder.architecture import BIDIRECTIONAL_MODULE
from jdistill.models.onnx_nodes import ONNX_ACTIVATIONS, Graph, OnnxBody, Weights, hf_config


def onnx_states(graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
    """All hidden states of the decoder in a folder."""
    kind, root = body[0]
    config = read_decoder_config(root)
    weights = Weights(root, read(root), "model.")
    states = decoder_nodes(graph, config, weights, causal=kind != BIDIRECTIONAL_MODULE)
    return OnnxBody(states, int(config.hidden_size), config.model_type)


def read_decoder_config(root: Path) -> Any:
    """transformers' own reading of config.json, its defaults included."""
    path = root / "config.json"
    kind = read_json(path).get("model_type", "")
    config = hf_config(root)
    rope = config.rope_parameters["rope_type"]
    if rope not in ("default", "llama3"):
        raise UserError(f"{path}: RoPE {rope!r} of a {kind} has no ONNX graph; supported: default, llama3")
    if config.hidden_act not in ONNX_ACTIVATIONS:
        raise UserError(
            f"{path}: activation {config.hidden_act!r} has no ONNX graph; supported: {', '.join(ONNX_ACTIVATIONS)}"
        )
    return config


def frequencies(config: Any, head: int) -> np.ndarray:
    """Angle a position, float32 [head / 2]; Llama 3.1's scaling interpolates between wavelengths short and long."""
    rope = config.rope_parameters
    plain = rope["rope_theta"] ** -(np.arange(0, head, 2) / head)
    if rope["rope_type"] == "default":
        return plain.astype(np.float32)
    wavelength, original = 2 * np.pi / plain, rope["original_max_position_embeddings"]
    long, short = original / rope["low_freq_factor"], original / rope["high_freq_factor"]
    smooth = (original / wavelength - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    between = (1 - smooth) * plain / rope["factor"] + smooth * plain
    scaled = np.where(wavelength > long, plain / rope["factor"], np.where(wavelength < short, plain, between))
    return scaled.astype(np.float32)


def decoder_nodes(graph: Graph, config: Any, weights: Weights, causal: bool) -> list[str]:
    """The decoder itself: adds `mask`, float32 [batch, sequence], and `shape`, and returns all hidden states, [batch *
    sequence, hidden], the last after the final norm."""
    op, hidden, inner = graph.op, config.hidden_size, config.intermediate_size
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    head = getattr(config, "head_dim", None) or hidden // heads
    bias = config.model_type == "qwen2" or getattr(config, "attention_bias", False)

    def linear(x: str, name: str, out: int, into: int, biased: bool) -> str:
        kernel = weights.take(f"{name}.weight", out, into)
        return graph.gemm(x, name, kernel, *([weights.take(f"{name}.bias", out)] if biased else []))

    def norm(x: str, name: str, size: int) -> str:
        return graph.rms_norm(x, name, weights.take(f"{name}.weight", size), config.rms_norm_eps)

    def split(
        x: str, count: int, name: str = ""
    ) -> str:  # to [batch, count, sequence, head], normed if a name is given
        x = op("Reshape", x, op("Concat", "shape", np.array([count, head]), axis=0))
        return op("Transpose", norm(x, name, head) if name else x, perm=[0, 2, 1, 3])

    def rotated(x: str) -> str:
        first, second = op("Slice", x, [0], [head // 2], [3]), op("Slice", x, [head // 2], [head], [3])
        turned = op("Sub", op("Mul", first, cos), op("Mul", second, sin))
        return op("Concat", turned, op("Add", op("Mul", second, cos), op("Mul", first, sin)), axis=3)

    def repeated(x: str) -> str:  # each key/value head for its heads / groups queries
        tiled = op("Tile", op("Unsqueeze", x, [2]), np.array([1, 1, heads // groups, 1, 1]))
        sizes = op("Concat", op("Slice", "shape", [0], [1]), [heads], op("Slice", "shape", [1], [2]), [head], axis=0)
        return op("Reshape", tiled, sizes)

    def attention(x: str, name: str) -> str:
        normed = config.model_type == "qwen3"
        q = split(linear(x, f"{name}.q_proj", heads * head, hidden, bias), heads, f"{name}.q_norm" if normed else "")
        k = split(linear(x, f"{name}.k_proj", groups * head, hidden, bias), groups, f"{name}.k_norm" if normed else "")
        v = split(linear(x, f"{name}.v_proj", groups * head, hidden, bias), groups)
        k, v = repeated(rotated(k)), repeated(v)
        scores = op("Mul", op("MatMul", rotated(q), op("Transpose", k, perm=[0, 1, 3, 2])), np.float32(head**-0.5))
        mixed = op("MatMul", op("Softmax", op("Add", scores, hide), axis=-1), v)
        flat = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), [-1, heads * head])
        return linear(flat, f"{name}.o_proj", hidden, heads * head, bias and config.model_type != "qwen2")

    op("Shape", "input_ids", name="shape")
    op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask")
    position = op("Max", op("Sub", op("CumSum", "mask", np.int64(1)), np.float32(1)), np.float32(0))
    angle = op("Unsqueeze", op("Mul", op("Unsqueeze", position, [2]), frequencies(config, head)), [1])
    cos, sin = op("Cos", angle), op("Sin", angle)
    seen = op("Cast", op("Unsqueeze", "mask", [1, 2]), to=TensorProto.BOOL)
    if causal:
        place = op("Range", np.int64(0), op("Squeeze", op("Slice", "shape", [1], [2])), np.int64(1))
        before = op("GreaterOrEqual", op("Unsqueeze", place, [1]), op("Unsqueeze", place, [0]))
        seen = op("And", seen, op("Unsqueeze", before, [0, 1]))
    hide = op("Where", seen, np.float32(0), np.finfo(np.float32).min)
    x = op("Gather", weights.take("embed_tokens.weight", config.vocab_size, hidden), "input_ids")
    x = op("Reshape", x, [-1, hidden])
    states = [x]
    mlp_bias = getattr(config, "mlp_bias", False)
    for i in range(config.num_hidden_layers):
        name = f"layers.{i}"
        x = op("Add", x, attention(norm(x, f"{name}.input_layernorm", hidden), f"{name}.self_attn"))
        normed = norm(x, f"{name}.post_attention_layernorm", hidden)
        gate = ONNX_ACTIVATIONS[config.hidden_act](
            graph, linear(normed, f"{name}.mlp.gate_proj", inner, hidden, mlp_bias)
        )
        wide = op("Mul", gate, linear(normed, f"{name}.mlp.up_proj", inner, hidden, mlp_bias))
        x = op("Add", x, linear(wide, f"{name}.mlp.down_proj", hidden, inner, mlp_bias))
        states.append(x)
    states[-1] = norm(x, "norm", hidden)
    return states
