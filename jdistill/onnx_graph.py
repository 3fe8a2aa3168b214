"""The ONNX graph of an exported encoder: built from its Hugging Face / sentence-transformers folder, saved and run.

It reads the files, never Flax parameters, so that a graph which agrees with Flax is an independent check of an export.
Only standard operators are used. Between attention blocks tokens lie flat, [batch * sequence, width]: on a CPU, ONNX
Runtime runs a 2-D Gemm with its bias faster than a 3-D MatMul + Add, and than its own fused attention and skip-norm.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from transformers import AutoConfig

from jdistill.convert import read_tensors
from jdistill.errors import UserError

OPSET, IR_VERSION = 20, 9  # the first opset with Gelu, and the file version of its time: an older runtime refuses newer

_BERT = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
    "layer": "encoder.layer",
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
    "layer": "transformer.layer",
}
LAYERS = {"bert": _BERT, "roberta": _BERT, "distilbert": _DISTILBERT, "electra": _BERT}
WITH_TYPES = ("bert", "electra")  # the model types that take token_type_ids
POOLINGS = ("mean", "cls", "max")
DENSE_ACTIVATIONS = ("Identity", "Tanh")


class _Graph:
    """Collects nodes and constants; a value goes by its name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: Any, name: str = "") -> str:
        name = name or f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def op(self, kind: str, *inputs: Any, name: str = "", **attributes: Any) -> str:
        """Adds a node and returns its output. Inputs that are not names become constants: [1] is an int64 vector."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        name = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [name], name=name, **attributes))
        return name

    def gemm(self, x: str, name: str, kernel: np.ndarray, *bias: np.ndarray) -> str:
        """x [rows, in] times a torch weight [out, in], plus a bias [out] if there is one."""
        constants = [self.constant(kernel, f"{name}.weight"), *(self.constant(value, f"{name}.bias") for value in bias)]
        return self.op("Gemm", x, *constants, transB=1)


ACTIVATIONS: dict[str, Callable[[_Graph, str], str]] = {
    "gelu": lambda graph, x: graph.op("Gelu", x),
    "gelu_new": lambda graph, x: graph.op("Gelu", x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda graph, x: graph.op("Gelu", x, approximate="tanh"),
    "relu": lambda graph, x: graph.op("Relu", x),
    "silu": lambda graph, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
}


def build(folder: Path) -> onnx.ModelProto:
    """The float32 graph of the encoder in `folder`: token ids in, token and sentence vectors out.

    Inputs, int64 [batch, sequence], both dynamic: input_ids, attention_mask (1: a token, 0: padding), and for BERT and
    ELECTRA token_type_ids. Outputs, float32: token_embeddings [batch, sequence, hidden] and sentence_embedding
    [batch, dim] after all modules of modules.json; without that file, the mean over the tokens. Prompts are text, so
    they are the caller's. Raises UserError for whatever is missing, damaged or not supported.
    """
    modules = _modules(Path(folder))
    config = _config(modules[0][1])
    graph, hidden = _Graph(), int(config.hidden_size)
    tokens = _tokens(graph, config, _Weights(modules[0][1], f"{config.model_type}."))
    mode = _pooling_mode(modules[1][1] / "config.json") if len(modules) > 1 else "mean"
    vector, dim = _pool(graph, mode, tokens), hidden
    for kind, path in modules[2:]:
        if kind == "Dense":
            vector, dim = _dense(graph, path, vector, dim)
        else:  # a zero vector stays zero, as in torch; LpNormalization leaves that case to the runtime
            length = graph.op("Max", graph.op("ReduceL2", vector, [-1], keepdims=1), np.float32(1e-12))
            vector = graph.op("Div", vector, length)
    graph.op("Identity", vector, name="sentence_embedding")
    ids = ["input_ids", "attention_mask", *(["token_type_ids"] if config.model_type in WITH_TYPES else [])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in ids]
    outputs = [
        helper.make_tensor_value_info(tokens, TensorProto.FLOAT, ["batch", "sequence", hidden]),
        helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", dim]),
    ]
    proto = helper.make_graph(graph.nodes, f"{config.model_type}_encoder", inputs, outputs, graph.constants)
    return helper.make_model(
        proto, producer_name="jdistill", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def save(folder: Path, name: str = "onnx/model.onnx") -> Path:
    """Builds the graph of `folder`, checks it with onnx.checker and writes it to folder / name, whole or not at all."""
    path = Path(folder) / name
    model = build(folder)
    onnx.checker.check_model(model, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(model.SerializeToString())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def session(path: str | Path) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session on the CPU, with the runtime's own number of threads and all its optimisations."""
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run(path: str | Path | onnxruntime.InferenceSession, tokens: Mapping[str, np.ndarray]) -> np.ndarray:
    """Sentence vectors of one padded batch: float32 [batch, dim].

    path: the graph's file, or a `session` of it, which saves reading it again. tokens: input_ids and attention_mask,
    integers [batch, sequence]; token_type_ids are zeros when absent, and dropped where the graph does not take them.
    """
    runtime = session(path) if isinstance(path, str | Path) else path
    given = {"token_type_ids": np.zeros_like(tokens["input_ids"]), **tokens}
    feed = {item.name: np.asarray(given[item.name], np.int64) for item in runtime.get_inputs()}
    return runtime.run(["sentence_embedding"], feed)[0]


class _Weights:
    """The float32 tensors of a folder, handed out by name and shape."""

    def __init__(self, folder: Path, prefix: str):
        self.folder = folder
        self.tensors = {
            name.removeprefix(prefix)
            .replace("LayerNorm.gamma", "LayerNorm.weight")
            .replace("LayerNorm.beta", "LayerNorm.bias"): x
            for name, x in read_tensors(folder).items()
        }

    def take(self, name: str, *shape: int) -> np.ndarray:
        if name not in self.tensors:
            raise UserError(f"{self.folder}: tensor {name} is missing; it holds {sorted(self.tensors)[:3]}, ...")
        if (found := self.tensors[name].shape) != shape:
            raise UserError(f"{self.folder}: tensor {name} has shape {found}, but config.json asks for {shape}")
        return self.tensors[name]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is missing or not valid JSON: {error}") from None


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """(kind, folder) of each module; kind is the last part of the type, the only one that old and new files share."""
    if not (path := folder / "modules.json").is_file():
        return [("Transformer", folder)]
    modules = [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in _json(path)]
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Dense", "Normalize"}:
        raise UserError(f"{path} lists {kinds}; supported is Transformer, Pooling, then any of Dense and Normalize")
    return modules


def _config(root: Path) -> Any:
    """transformers' own reading of config.json, its defaults included, under BERT's names for every model type."""
    path = root / "config.json"
    raw = _json(path)
    for key, allowed, default in (("model_type", LAYERS, ""), ("position_embedding_type", ["absolute"], "absolute")):
        if raw.get(key, default) not in allowed:
            raise UserError(f"{path}: {key} {raw.get(key)!r} has no ONNX graph; supported: {', '.join(allowed)}")
    try:
        config = AutoConfig.from_pretrained(root)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not a config that transformers can read: {error}") from None
    if config.model_type == "distilbert":
        config.intermediate_size, config.hidden_act, config.layer_norm_eps = config.hidden_dim, config.activation, 1e-12
    if config.model_type != "electra":
        config.embedding_size = config.hidden_size
    if (activation := config.hidden_act) not in ACTIVATIONS:
        raise UserError(f"{path}: activation {activation!r} has no ONNX graph; supported: {', '.join(ACTIVATIONS)}")
    return config


def _tokens(graph: _Graph, config: Any, weights: _Weights) -> str:
    """The encoder itself: adds `mask`, float32 [batch, sequence], and returns token_embeddings."""
    op, width, hidden, inner = graph.op, config.embedding_size, config.hidden_size, config.intermediate_size
    table, heads = LAYERS[config.model_type], config.num_attention_heads
    head = hidden // heads

    def linear(x: str, name: str, out: int, into: int) -> str:
        return graph.gemm(x, name, weights.take(f"{name}.weight", out, into), weights.take(f"{name}.bias", out))

    def norm(x: str, name: str, size: int) -> str:
        both = [graph.constant(weights.take(part, size), part) for part in (f"{name}.weight", f"{name}.bias")]
        return op("LayerNormalization", x, *both, axis=-1, epsilon=config.layer_norm_eps)

    def unflatten(x: str, *last: int) -> str:  # to [batch, sequence, *last]
        return op("Reshape", x, op("Concat", shape, np.array(last), axis=0))

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

    shape = op("Shape", "input_ids")
    padding = op("Sub", np.float32(1), op("Cast", "attention_mask", to=TensorProto.FLOAT, name="mask"))
    # Added to the scores: 0 for a token, the lowest float for padding; finite, so that a row of padding gives no NaN.
    hide = op("Mul", op("Unsqueeze", padding, [1, 2]), np.finfo(np.float32).min)
    x = op("Reshape", norm(_embeddings(graph, config, weights), "embeddings.LayerNorm", width), [-1, width])
    if width != hidden:
        x = linear(x, "embeddings_project", hidden, width)
    for i in range(config.num_hidden_layers):
        names = {part: f"{table['layer']}.{i}.{name}" for part, name in table.items()}
        mixed = linear(attention(x, names), names["out"], hidden, hidden)
        x = norm(op("Add", mixed, x), names["attention_norm"], hidden)
        wide = ACTIVATIONS[config.hidden_act](graph, linear(x, names["up"], inner, hidden))
        x = norm(op("Add", linear(wide, names["down"], hidden, inner), x), names["output_norm"], hidden)
    return op("Identity", unflatten(x, hidden), name="token_embeddings")


def _embeddings(graph: _Graph, config: Any, weights: _Weights) -> str:
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
    if config.model_type != "roberta":
        return op("Add", x, op("Slice", position, [0], op("Shape", "input_ids", start=1, end=2), [0]))
    # As transformers counts: tokens from padding_idx + 1 on, padding at padding_idx, told by the ids and not the mask.
    pad = np.int64(config.pad_token_id)
    token = op("Cast", op("Not", op("Equal", "input_ids", pad)), to=TensorProto.INT64)
    count = op("Mul", op("CumSum", token, np.int64(1)), token)
    return op("Add", x, op("Gather", position, op("Add", count, pad)))


def _pooling_mode(path: Path) -> str:
    """The pooling that 1_Pooling/config.json asks for, in sentence-transformers' older or newer words."""
    config = _json(path)
    flags = [
        key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on
    ]
    named = config.get("pooling_mode", flags or "mean")
    modes = [named] if isinstance(named, str) else list(named)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise UserError(f"{path}: pooling {modes} has no ONNX graph; supported is one of {', '.join(POOLINGS)}")
    if not config.get("include_prompt", True):
        raise UserError(f"{path}: include_prompt is false, but a graph cannot tell the prompt's tokens from the text's")
    return modes[0]


def _pool(graph: _Graph, mode: str, tokens: str) -> str:
    """One vector a text, padding never counted: [batch, hidden]. The mean of a text without tokens is zeros."""
    op = graph.op
    if mode == "mean":
        total = op("Squeeze", op("MatMul", op("Unsqueeze", "mask", [1]), tokens), [1])
        return op("Div", total, op("Max", op("ReduceSum", "mask", [1], keepdims=1), np.float32(1e-9)))
    if mode == "max":
        real = op("Unsqueeze", op("Cast", "mask", to=TensorProto.BOOL), [2])
        return op("ReduceMax", op("Where", real, tokens, np.finfo(np.float32).min), [1], keepdims=0)
    # cls, as sentence-transformers takes it: the first token that is not padding, so that left padding is right too.
    return op("GatherND", tokens, op("ArgMax", "mask", axis=1, keepdims=1), batch_dims=1)


def _dense(graph: _Graph, folder: Path, x: str, into: int) -> tuple[str, int]:
    """A Dense module on x [batch, into]: the value's name and its width."""
    config = _json(path := folder / "config.json")
    activation = config.get("activation_function", "Tanh").rsplit(".", 1)[-1]  # sentence-transformers' own default
    if activation not in DENSE_ACTIVATIONS:
        raise UserError(f"{path}: activation {activation} has no ONNX graph; supported: {', '.join(DENSE_ACTIVATIONS)}")
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise UserError(f"{path}: only a Dense without residual, on the sentence embedding, has an ONNX graph")
    dim, weights = int(config["out_features"]), _Weights(folder, "")
    bias = [weights.take("linear.bias", dim)] if config.get("bias", True) else []
    x = graph.gemm(x, folder.name, weights.take("linear.weight", dim, into), *bias)
    return (graph.op("Tanh", x) if activation == "Tanh" else x), dim
