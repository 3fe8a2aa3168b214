"""The ONNX nodes of Llama-family decoders, from the files of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.decoder.architecture import BIDIRECTIONAL_MODULE
from jdistill.models.decoder.layer_types import FULL, GEMMA, SLIDING
from jdistill.models.onnx_nodes import ONNX_ACTIVATIONS, Graph, OnnxBody, Weights, hf_config


def onnx_states(graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
    """All hidden states of the decoder in a folder."""
    kind, root = body[0]
    config = read_decoder_config(root)
    weights = Weights(root, read(root), "model.")
    both_ways = kind == BIDIRECTIONAL_MODULE or getattr(config, "use_bidirectional_attention", False)
    causal = getattr(config, "is_causal", True) and not both_ways
    return OnnxBody(decoder_nodes(graph, config, weights, causal), int(config.hidden_size), config.model_type)


def read_decoder_config(root: Path) -> Any:
    """transformers' own reading of config.json, its defaults included; layer_types and rope_parameters of each for all
    model types."""
    path = root / "config.json"
    kind = read_json(path).get("model_type", "")
    config = hf_config(root)
    if kind == GEMMA:
        config.hidden_act = config.hidden_activation
    else:
        config.rope_parameters = dict.fromkeys((FULL, SLIDING), config.rope_parameters)
    if kind == "mistral" or getattr(config, "layer_types", None) is None:
        window = getattr(config, "sliding_window", None)
        config.layer_types = [FULL if window is None else SLIDING] * config.num_hidden_layers
    for rope in (config.rope_parameters[layer]["rope_type"] for layer in config.layer_types):
        if rope not in ("default", "llama3"):
            raise UserError(f"{path}: RoPE {rope!r} of a {kind} has no ONNX graph; supported: default, llama3")
    if config.hidden_act not in ONNX_ACTIVATIONS:
        raise UserError(
            f"{path}: activation {config.hidden_act!r} has no ONNX graph; supported: {', '.join(ONNX_ACTIVATIONS)}"
        )
    return config


def frequencies(rope: dict[str, Any], head: int) -> np.ndarray:
    """Angle a position, float32 [head / 2]; Llama 3.1's scaling interpolates between wavelengths short and long."""
    plain = rope["rope_theta"] ** -(np.arange(0, head, 2) / head)
    if rope["rope_type"] == "default":
        return plain.astype(np.float32)
    wavelength, original = 2 * np.pi / plain, rope["original_max_position_embeddings"]
    long, short = original / rope["low_freq_factor"], original / rope["high_freq_factor"]
    smooth = (original / wavelength - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    between = (1 - smooth) * plain / rope["factor"] + smooth * plain
    scaled = np.where(wavelength > long, plain / rope["factor"], np.where(wavelength < short, plain, between))
    return scaled.astype(np.float32)


@dataclass(frozen=True)
class LayerType:
    """Values that layers of a type share: [batch, 1, sequence, head / 2], and what is added to scores."""

    cos: str
    sin: str
    hide: str


@dataclass(frozen=True)
class DecoderNodes:
    """Adds the parts of a decoder to a graph, by their names on disk. Tokens lie flat, [batch * sequence, width]."""

    graph: Graph
    config: Any
    weights: Weights

    @property
    def gemma(self) -> bool:
        return self.config.model_type == GEMMA

    @property
    def head(self) -> int:
        """Width of a head."""
        return getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads

    def linear(self, x: str, name: str, out: int, into: int, biased: bool) -> str:
        kernel = self.weights.take(f"{name}.weight", out, into)
        return self.graph.gemm(x, name, kernel, *([self.weights.take(f"{name}.bias", out)] if biased else []))

    def norm(self, x: str, name: str, size: int) -> str:
        scale = self.weights.take(f"{name}.weight", size)
        return self.graph.rms_norm(x, name, scale + 1 if self.gemma else scale, self.config.rms_norm_eps)

    def split(self, x: str, count: int, name: str = "") -> str:
        """To [batch, count, sequence, head], normed if a name is given."""
        x = self.graph.op("Reshape", x, self.graph.op("Concat", "shape", np.array([count, self.head]), axis=0))
        return self.graph.op("Transpose", self.norm(x, name, self.head) if name else x, perm=[0, 2, 1, 3])

    def rotated(self, x: str, of: LayerType) -> str:
        op, half = self.graph.op, self.head // 2
        first, second = op("Slice", x, [0], [half], [3]), op("Slice", x, [half], [2 * half], [3])
        turned = op("Sub", op("Mul", first, of.cos), op("Mul", second, of.sin))
        return op("Concat", turned, op("Add", op("Mul", second, of.cos), op("Mul", first, of.sin)), axis=3)

    def repeated(self, x: str) -> str:
        """Each key/value head for the query heads that share it."""
        op, heads = self.graph.op, self.config.num_attention_heads
        tiled = op("Tile", op("Unsqueeze", x, [2]), np.array([1, 1, heads // self.config.num_key_value_heads, 1, 1]))
        batch, length = op("Slice", "shape", [0], [1]), op("Slice", "shape", [1], [2])
        return op("Reshape", tiled, op("Concat", batch, [heads], length, [self.head], axis=0))

    def attention(self, x: str, name: str, of: LayerType) -> str:
        c, op, head = self.config, self.graph.op, self.head
        heads, groups, hidden = c.num_attention_heads, c.num_key_value_heads, c.hidden_size
        bias = c.model_type == "qwen2" or (c.model_type != "mistral" and getattr(c, "attention_bias", False))
        normed = c.model_type in ("qwen3", GEMMA)
        q, k, v = (
            self.linear(x, f"{name}.{part}_proj", count * head, hidden, bias)
            for part, count in (("q", heads), ("k", groups), ("v", groups))
        )
        q = self.split(q, heads, f"{name}.q_norm" if normed else "")
        k = self.repeated(self.rotated(self.split(k, groups, f"{name}.k_norm" if normed else ""), of))
        v = self.repeated(self.split(v, groups))
        scale = np.float32((c.query_pre_attn_scalar if self.gemma else head) ** -0.5)
        scores = op("Mul", op("MatMul", self.rotated(q, of), op("Transpose", k, perm=[0, 1, 3, 2])), scale)
        mixed = op("MatMul", op("Softmax", op("Add", scores, of.hide), axis=-1), v)
        flat = op("Reshape", op("Transpose", mixed, perm=[0, 2, 1, 3]), [-1, heads * head])
        return self.linear(flat, f"{name}.o_proj", hidden, heads * head, bias and c.model_type != "qwen2")

    def feed_forward(self, x: str, name: str) -> str:
        c, op = self.config, self.graph.op
        biased = c.model_type == "llama" and c.mlp_bias
        gate = self.linear(x, f"{name}.gate_proj", c.intermediate_size, c.hidden_size, biased)
        up = self.linear(x, f"{name}.up_proj", c.intermediate_size, c.hidden_size, biased)
        wide = op("Mul", ONNX_ACTIVATIONS[c.hidden_act](self.graph, gate), up)
        return self.linear(wide, f"{name}.down_proj", c.hidden_size, c.intermediate_size, biased)

    def layer(self, x: str, name: str, of: LayerType) -> str:
        hidden, add = self.config.hidden_size, self.graph.op
        between = "pre_feedforward_layernorm" if self.gemma else "post_attention_layernorm"
        update = self.attention(self.norm(x, f"{name}.input_layernorm", hidden), f"{name}.self_attn", of)
        if self.gemma:
            update = self.norm(update, f"{name}.post_attention_layernorm", hidden)
        x = add("Add", x, update)
        update = self.feed_forward(self.norm(x, f"{name}.{between}", hidden), f"{name}.mlp")
        if self.gemma:
            update = self.norm(update, f"{name}.post_feedforward_layernorm", hidden)
        return add("Add", x, update)

    def layer_type(self, kind: str, position: str, causal: bool) -> LayerType:
        """What the layers of a type share; position: of each token in its text, float32 [batch, sequence]."""
        op = self.graph.op
        turns = frequencies(self.config.rope_parameters[kind], self.head)
        angle = op("Unsqueeze", op("Mul", op("Unsqueeze", position, [2]), turns), [1])
        seen = op("Cast", op("Unsqueeze", "mask", [1, 2]), to=TensorProto.BOOL)
        if causal:
            place = op("Range", np.int64(0), op("Squeeze", op("Slice", "shape", [1], [2])), np.int64(1))
            before = op("GreaterOrEqual", op("Unsqueeze", place, [1]), op("Unsqueeze", place, [0]))
            seen = op("And", seen, op("Unsqueeze", before, [0, 1]))
        if kind == SLIDING:
            distance = op("Abs", op("Sub", op("Unsqueeze", position, [2]), op("Unsqueeze", position, [1])))
            near = op("Less", distance, np.float32(self.config.sliding_window))
            seen = op("And", seen, op("Unsqueeze", near, [1]))
        hide = op("Where", seen, np.float32(0), np.finfo(np.float32).min)
        return LayerType(op("Cos", angle), op("Sin", angle), hide)


def decoder_nodes(graph: Graph, config: Any, weights: Weights, causal: bool) -> list[str]:
    """The decoder itself: adds `mask`, float32 [batch, sequence], and `shape`, and returns all hidden states, [batch *
    sequence, hidden], the last after the final norm."""
    op, nodes = graph.op, DecoderNodes(graph, config, weights)
    op("Shape", "input_ids", name="shape")
    op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask")
    position = op("Max", op("Sub", op("CumSum", "mask", np.int64(1)), np.float32(1)), np.float32(0))
    types = {kind: nodes.layer_type(kind, position, causal) for kind in dict.fromkeys(config.layer_types)}
    x = op("Gather", weights.take("embed_tokens.weight", config.vocab_size, config.hidden_size), "input_ids")
    x = op("Reshape", x, [-1, config.hidden_size])
    if nodes.gemma:
        x = op("Mul", x, np.float32(config.hidden_size**0.5))
    states = [x]
    for i, kind in enumerate(config.layer_types):
        states.append(nodes.layer(states[-1], f"layers.{i}", types[kind]))
    states[-1] = nodes.norm(states[-1], "norm", config.hidden_size)
    return states
