"""The ONNX graph of an exported encoder: built from its Hugging Face / sentence-transformers folder, saved and run.

It reads the files, never Flax parameters, so that a graph which agrees with Flax is an independent check of an export.
Only standard operators are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json
from jdistill.encoder.formats.body import TRANSFORMERS
from jdistill.encoder.formats.modules import POOLER_MODULES
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.export.onnx import pma as onnx_pma
from jdistill.export.onnx import storage
from jdistill.models.onnx_nodes import Graph, Weights
from jdistill.models.registry import OWN_MODULES, transformer_named, with_modules

OPSET, IR_VERSION = 20, 9  # the first opset with Gelu, and the file version of its time: an older runtime refuses newer
ONNX_POOLINGS = ("mean", "cls", "max", "lasttoken")
BODIES = (*((kind,) for kind in TRANSFORMERS), *OWN_MODULES)
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OF_TOKENS = ("token_embeddings", "last_hidden_state")  # one tensor by two names
OF_TEXTS = "sentence_embedding"
ONNX_DENSE_ACTIVATIONS = ("Identity", "Tanh")


def build_graph(folder: Path) -> tuple[onnx.ModelProto, storage.Constants]:
    """The float32 graph of the encoder in `folder`, token ids in, token and sentence vectors out, and apart from it its constants.

    Inputs, int64 [batch, sequence], both dynamic: input_ids, attention_mask (1: a token, 0: padding), and for BERT, ELECTRA and NomicBERT
    token_type_ids. Outputs, float32: token_embeddings [batch, sequence, hidden], last_hidden_state (the same, by the name that optimum
    and with it sentence-transformers' backends ask for) and sentence_embedding [batch, dim] after all modules of modules.json; without
    that file, the mean over the tokens. Prompts are text, so they are the caller's.

    Raises: UserError for whatever is missing, damaged or not supported.
    """
    modules, graph = _modules(Path(folder)), Graph()
    architecture = with_modules([kind for kind, _ in modules])
    if architecture is None:
        config = modules[0][1] / "config.json"
        architecture = transformer_named(read_json(config).get("model_type"), config)
    count = len(architecture.own_modules) or 1
    body, modules = modules[:count], modules[count:]
    model = architecture.onnx_states(graph, body, read_tensors)
    states, hidden = model.states, model.width
    count = 2 if modules and modules[0][0] == "WeightedLayerPooling" else 1
    pooling, after = modules[:count], modules[count:]
    layers, dim, mode = _layers(graph, pooling, states, hidden)
    of_pma = mode == "pma"
    vector = (
        onnx_pma.pma_nodes(graph, pooling[0][1], layers, dim)
        if of_pma
        else _pool(graph, mode, _unflatten(graph, layers, dim), dim)
    )
    of_tokens = [graph.op("Identity", _unflatten(graph, states[-1], hidden), name=name) for name in OF_TOKENS]
    for module, path in after:
        if module == "Dense":
            vector, dim = _dense(graph, path, vector, dim)
        else:  # a zero vector stays zero, as in torch; LpNormalization leaves that case to the runtime
            length = graph.op("Max", graph.op("ReduceL2", vector, [-1], keepdims=1), np.float32(1e-12))
            vector = graph.op("Div", vector, length)
    graph.op("Identity", vector, name=OF_TEXTS)
    ids = ["input_ids", "attention_mask", *(["token_type_ids"] if model.takes_types else [])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in ids]
    outputs = [
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "sequence", hidden]) for name in of_tokens),
        helper.make_tensor_value_info(OF_TEXTS, TensorProto.FLOAT, ["batch", dim]),
    ]
    nodes = helper.make_graph(graph.nodes, f"{model.kind}_encoder", inputs, outputs)
    proto = helper.make_model(
        nodes, producer_name="jdistill", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    return proto, graph.constants


def save_graph(folder: Path, name: str = "onnx/model.onnx", inline_bytes: int | None = None) -> Path:
    """Builds the graph of `folder`, writes it to folder / name, whole or not at all, and checks it with onnx.checker.

    Args:
      inline_bytes: above how many bytes its weights lie in a data file beside it; None: storage.INLINE_BYTES.

    Returns: the graph's file.
    """
    path = Path(folder) / name
    proto, constants = build_graph(folder)
    with storage.placing(path) as beside:
        storage.write_graph(proto, constants, beside, inline_bytes)
        del proto  # which holds the weights where they are in the graph's file, as the checker does next
        onnx.checker.check_model(beside, full_check=True)
    return path


def session(path: str | Path) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session on the CPU, with the runtime's own number of threads and all its optimisations.

    Raises: UserError where the graph's weights lie in a data file that is missing or was cut off.
    """
    try:
        return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception:
        storage.check_data(Path(path))
        raise


def run_graph(path: str | Path | onnxruntime.InferenceSession, tokens: Mapping[str, np.ndarray]) -> np.ndarray:
    """Sentence vectors of one padded batch.

    Args:
      path: the graph's file, or a `session` of it, which saves reading it again.
      tokens: as inputs_of has them.

    Returns: float32 [batch, dim].
    """
    runtime = session(path) if isinstance(path, str | Path) else path
    feed = inputs_of((item.name for item in runtime.get_inputs()), tokens)
    return runtime.run([OF_TEXTS], feed)[0]


def inputs_of(names: Iterable[str], tokens: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a graph with inputs of these names is given for one padded batch, int64 [batch, sequence].

    tokens: input_ids and attention_mask, integers [batch, sequence]; token_type_ids are zeros when absent, and dropped where the graph does
    not take them.
    """
    with_types = {"token_type_ids": np.zeros_like(tokens["input_ids"]), **tokens}
    return {name: np.asarray(with_types[name], np.int64) for name in names}


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """(kind, folder) of each module; kind is the last part of the type, the only one that old and new files share."""
    if not (path := folder / "modules.json").is_file():
        return [("Transformer", folder)]
    modules = [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in read_json(path)]
    if modules[-1][0] == "Interaction":  # of pairs; vectors pass through it
        modules = modules[:-1]
    kinds = [kind for kind, _ in modules]
    body = next((body for body in BODIES if tuple(kinds[: len(body)]) == body), None)
    rest = kinds[len(body) :] if body else []
    matching = [pooler for pooler in POOLER_MODULES if rest[: len(pooler)] == pooler]
    if not matching or set(rest[len(matching[0]) :]) - {"Dense", "Normalize"}:
        raise UserError(
            f"{path} lists {kinds}; supported is {' or '.join(' and '.join(body) for body in BODIES)}, then Pooling and any of Dense and Normalize"
        )
    return modules


def _layers(graph: Graph, pooling: list[tuple[str, Path]], states: list[str], hidden: int) -> tuple[str, int, str]:
    """What is pooled over tokens, [batch * sequence, width], its width, and the mode."""
    if not pooling:
        return states[-1], hidden, "mean"
    kind, path = pooling[0]
    if kind in ("FinalStates", "PmaPooling"):
        return states[-1], hidden, "final" if kind == "FinalStates" else "pma"
    if kind == "LayerPooling":
        settings = read_json(path / "config.json")
        taken = [states[layer] for layer in settings["layers"]]
        if settings["over_layers"] == "concat":
            return graph.op("Concat", *taken, axis=1), hidden * len(taken), "mean"
        return graph.op("Max", *taken), hidden, "mean"
    mode = _pooling_mode(pooling[-1][1] / "config.json")
    if kind == "Pooling":
        return states[-1], hidden, mode
    start = int(read_json(path / "config.json")["layer_start"])
    weights = Weights(path, read_tensors(path)).take("layer_weights", len(states) - start)
    terms = [
        graph.op("Mul", state, np.float32(weight / weights.sum()))
        for state, weight in zip(states[start:], weights, strict=True)
        if weight
    ]
    return graph.op("Sum", *terms), hidden, mode


def _unflatten(graph: Graph, x: str, width: int) -> str:
    """[batch * sequence, width] as [batch, sequence, width]."""
    return graph.op("Reshape", x, graph.op("Concat", "shape", [width], axis=0))


def _pooling_mode(path: Path) -> str:
    """The pooling that 1_Pooling/config.json asks for, in sentence-transformers' older or newer words."""
    config = read_json(path)
    flags = [
        key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
        for key, on in config.items()
        if key.startswith("pooling_mode_") and on
    ]
    named = config.get("pooling_mode", flags or "mean")
    modes = [named] if isinstance(named, str) else list(named)
    if len(modes) != 1 or modes[0] not in ONNX_POOLINGS:
        raise UserError(f"{path}: pooling {modes} has no ONNX graph; supported is one of {', '.join(ONNX_POOLINGS)}")
    if not config.get("include_prompt", True):
        raise UserError(f"{path}: include_prompt is false, but a graph cannot tell the prompt's tokens from the text's")
    return modes[0]


def _pool(graph: Graph, mode: str, tokens: str, width: int) -> str:
    """One vector a text, padding never counted: [batch, width]. The mean and the last token of a text without tokens are zeros."""
    op = graph.op
    if mode == "mean":
        total = op("Squeeze", op("MatMul", op("Unsqueeze", "mask", [1]), tokens), [1])
        return op("Div", total, op("Max", op("ReduceSum", "mask", [1], keepdims=1), np.float32(1e-9)))
    if mode == "max":
        real = op("Unsqueeze", op("Cast", "mask", to=TensorProto.BOOL), [2])
        return op("ReduceMax", op("Where", real, tokens, np.finfo(np.float32).min), [1], keepdims=0)
    if mode == "final":
        last, first = _pool(graph, "lasttoken", tokens, width), _pool(graph, "cls", tokens, width)
        half, end = [width // 2], [width]
        return op("Concat", op("Slice", last, [0], half, [1]), op("Slice", first, half, end, [1]), axis=1)
    if mode == "lasttoken":
        counted = op(
            "Mul", op("CumSum", "mask", np.int64(1)), "mask"
        )  # highest at the last token, on whichever side padding is
        last = op("GatherND", tokens, op("ArgMax", counted, axis=1, keepdims=1), batch_dims=1)
        return op("Mul", last, op("ReduceMax", "mask", [1], keepdims=1))
    # cls, as sentence-transformers takes it: the first token that is not padding, so that left padding is right too.
    return op("GatherND", tokens, op("ArgMax", "mask", axis=1, keepdims=1), batch_dims=1)


def _dense(graph: Graph, folder: Path, x: str, into: int) -> tuple[str, int]:
    """A Dense module on x [batch, into]: the value's name and its width."""
    config = read_json(path := folder / "config.json")
    activation = config.get("activation_function", "Tanh").rsplit(".", 1)[-1]  # sentence-transformers' own default
    if activation not in ONNX_DENSE_ACTIVATIONS:
        raise UserError(
            f"{path}: activation {activation} has no ONNX graph; supported: {', '.join(ONNX_DENSE_ACTIVATIONS)}"
        )
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise UserError(f"{path}: only a Dense without residual, on the sentence embedding, has an ONNX graph")
    dim, weights = int(config["out_features"]), Weights(folder, read_tensors(folder))
    bias = [weights.take("linear.bias", dim)] if config.get("bias", True) else []
    x = graph.gemm(x, folder.name, weights.take("linear.weight", dim, into), *bias)
    return (graph.op("Tanh", x) if activation == "Tanh" else x), dim
