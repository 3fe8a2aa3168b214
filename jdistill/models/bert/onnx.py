"""The ONNX nodes of BERT, RoBERTa, DistilBERT and ELECTRA, from the files of a folder.

Between attention blocks tokens lie flat, [batch * sequence, width]: on a CPU, ONNX Runtime runs a 2-D Gemm with its bias
faster than a 3-D MatMul + Add, and than its own fused attention and skip-norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json
from jdistill.models.architecture import Body, ReadTensors
from jdistill.models.bert.config import ROBERTAS, prefix_of
from jdistill.models.onnx_nodes import ONNX_ACTIVATIONS, Graph, OnnxBody, Weights, hf_config

_BERT: dict[str, str] = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
_DISTILBERT = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "output_norm": "output_layer_norm",
}
AddNodes = Callable[[Graph, Any, Weights], str]
WITH_TYPES = ("bert", "electra")  # the model types that take token_type_ids
NARROWER = ("electra", "albert")  # those whose token embeddings have a width of their own


@dataclass(frozen=True)
class TensorNames:
    """What the tensors of an encoder are called.

    Args:
      layers: each layer's, in the order in which they run; one that runs again stands there again.
      parts: of a layer, by what they are.
      project: of the projection from the token embeddings to the layers; "": there is none.
    """

    layers: Sequence[str]
    parts: Mapping[str, str]
    project: str = ""


def onnx_states(graph: Graph, body: Body, read: ReadTensors) -> OnnxBody:
    """All hidden states of the encoder in a folder."""
    root = body[0][1]
    config = read_encoder_config(root)
    weights = Weights(root, read(root), prefix_of(config.model_type))
    distil = config.model_type == "distilbert"
    kind, parts = ("transformer", _DISTILBERT) if distil else ("encoder", _BERT)
    project = "" if config.embedding_size == config.hidden_size else "embeddings_project"
    names = TensorNames([f"{kind}.layer.{i}" for i in range(config.num_hidden_layers)], parts, project)
    states = encoder_nodes(graph, config, weights, names, embedding_sum)
    return OnnxBody(states, int(config.hidden_size), config.model_type, config.model_type in WITH_TYPES)


def read_encoder_config(root: Path) -> Any:
    """transformers' own reading of config.json, its defaults included, under BERT's names for every model type."""
    path = root / "config.json"
    raw = read_json(path)
    if (kind := raw.get("position_embedding_type", "absolute")) != "absolute":
        raise UserError(f"{path}: position_embedding_type {kind!r} has no ONNX graph; supported: absolute")
    config = hf_config(root)
    if config.model_type == "distilbert":
        config.intermediate_size, config.hidden_act, config.layer_norm_eps = config.hidden_dim, config.activation, 1e-12
    if config.model_type not in NARROWER:
        config.embedding_size = config.hidden_size
    if (activation := config.hidden_act) not in ONNX_ACTIVATIONS:
        raise UserError(
            f"{path}: activation {activation!r} has no ONNX graph; supported: {', '.join(ONNX_ACTIVATIONS)}"
        )
    return config


def encoder_nodes(
    graph: Graph,
    config: Any,
    weights: Weights,
    tensors: TensorNames,
    embeddings: AddNodes,
    bias: AddNodes | None = None,
) -> list[str]:
    """The encoder itself: adds `mask`, float32 [batch, sequence], and `shape`, and returns all hidden states, [batch * sequence, hidden].

    tensors: what they are called. embeddings: adds their sum before its norm, [batch, sequence, width]. bias: adds
    what the scores of each head are raised by, [1, heads, sequence, sequence]; None: nothing.
    """
    op, width, hidden, inner = graph.op, config.embedding_size, config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads
    head = hidden // heads

    def linear(x: str, name: str, out: int, into: int) -> str:
        return graph.gemm(x, name, weights.take(f"{name}.weight", out, into), weights.take(f"{name}.bias", out))

    def norm(x: str, name: str, size: int) -> str:
        both = [graph.constant(weights.take(part, size), part) for part in (f"{name}.weight", f"{name}.bias")]
        return op("LayerNormalization", x, *both, axis=-1, epsilon=config.layer_norm_eps)

    def unflatten(x: str, *last: int) -> str:  # to [batch, sequence, *last]
        return op("Reshape", x, op("Concat", "shape", np.array(last), axis=0))

    def attention(x: str, names: dict[str, str]) -> str:
        # One Gemm for all three; the scale 1 / sqrt(head) is folded into the query's weights.
        parts = [(names["query"], np.float32(head**-0.5)), (names["key"], 1), (names["value"], 1)]
        kernel = np.concatenate([weights.take(f"{name}.weight", hidden, hidden) * scale for name, scale in parts])
        bias = np.concatenate([weights.take(f"{name}.bias", hidden) * scale for name, scale in parts])
        qkv = unflatten(graph.gemm(x, f"{names['query']}_key_value", kernel, bias), 3, heads, head)
        qkv = op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (op("Gather", qkv, np.int64(part), axis=0) for part in range(3))
        scores = op("Add", op("MatMul", q, op("Transpose", k, perm=[0, 1, 3, 2])), hide)
        context = op("Transpose", op("MatMul", op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return op("Reshape", context, [-1, hidden])

    op("Shape", "input_ids", name="shape")
    padding = op("Sub", np.float32(1), op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask"))
    # Added to the scores: 0 for a token, the lowest float for padding; finite, so that a row of padding gives no NaN.
    hide = op("Mul", op("Unsqueeze", padding, [1, 2]), np.finfo(np.float32).min)
    if bias:
        hide = op("Add", hide, bias(graph, config, weights))
    x = op("Reshape", norm(embeddings(graph, config, weights), "embeddings.LayerNorm", width), [-1, width])
    if tensors.project:
        x = linear(x, tensors.project, hidden, width)
    states = [x]
    for layer in tensors.layers:
        names = {part: f"{layer}.{name}" for part, name in tensors.parts.items()}
        mixed = linear(attention(x, names), names["out"], hidden, hidden)
        x = norm(op("Add", mixed, x), names["attention_norm"], hidden)
        wide = ONNX_ACTIVATIONS[config.hidden_act](graph, linear(x, names["up"], inner, hidden))
        x = norm(op("Add", linear(wide, names["down"], hidden, inner), x), names["output_norm"], hidden)
        states.append(x)
    return states


def embedding_sum(graph: Graph, config: Any, weights: Weights) -> str:
    """The sum of token, type and position embeddings, before its norm: [batch, sequence, width]."""
    op, width = graph.op, config.embedding_size
    x = op("Gather", weights.take("embeddings.word_embeddings.weight", config.vocab_size, width), "input_ids")
    position = weights.take("embeddings.position_embeddings.weight", config.max_position_embeddings, width)
    if config.model_type != "distilbert":
        types = weights.take("embeddings.token_type_embeddings.weight", config.type_vocab_size, width)
        if config.model_type in WITH_TYPES:
            x = op("Add", x, op("Gather", types, "token_type_ids"))
        else:
            position = position + types[0]  # RoBERTa: every token is of type 0
    if config.model_type not in ROBERTAS:
        return op("Add", x, op("Slice", position, [0], op("Shape", "input_ids", start=1, end=2), [0]))
    return op("Add", x, op("Gather", position, counted_positions(graph, config.pad_token_id)))


def counted_positions(graph: Graph, padding: int) -> str:
    """Positions as transformers counts them: tokens from padding + 1 on, padding at padding, told by the ids and not the mask."""
    op, pad = graph.op, np.int64(padding)
    token = op("Cast", op("Not", op("Equal", "input_ids", pad)), to=TensorProto.INT64)
    count = op("Mul", op("CumSum", token, np.int64(1)), token)
    return op("Add", count, pad)
