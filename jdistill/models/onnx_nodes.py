"""Pieces that ONNX graphs are built from: nodes and constants, the tensors of a folder, activations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from jdistill.core.errors import UserError
from jdistill.models.conversion import plain_names


class Graph:
    """Collects nodes and constants, (name, array) each, not copied; a value goes by its name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[tuple[str, np.ndarray]] = []
        self._names: set[str] = set()

    def constant(self, value: Any, name: str = "") -> str:
        """Adds a constant and returns its name. One of a name that is there is that one: a layer that runs again has its weights once."""
        name = name or f"constant_{len(self.constants)}"
        if name not in self._names:
            self._names.add(name)
            self.constants.append((name, np.asarray(value, order="C")))
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

    def rms_norm(self, x: str, name: str, scale: np.ndarray, eps: float) -> str:
        """x [..., width] over its root mean square, times a scale [width], whose name is that of the module."""
        square = self.op("ReduceMean", self.op("Mul", x, x), [-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", square, np.float32(eps)))
        return self.op("Mul", self.op("Div", x, root), self.constant(scale, f"{name}.weight"))


def hf_config(root: Path) -> Any:
    """transformers' own reading of a folder's config.json, its defaults included. Raises UserError where it cannot read it."""
    from transformers import AutoConfig  # here: it imports torch where that is installed, which takes seconds

    try:
        return AutoConfig.from_pretrained(root)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{root}/config.json is not a config that transformers can read: {error}") from None


ONNX_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "gelu": lambda graph, x: graph.op("Gelu", x),
    "gelu_new": lambda graph, x: graph.op("Gelu", x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda graph, x: graph.op("Gelu", x, approximate="tanh"),
    "relu": lambda graph, x: graph.op("Relu", x),
    "silu": lambda graph, x: graph.op("Mul", x, graph.op("Sigmoid", x)),
}


@dataclass(frozen=True)
class OnnxBody:
    """Where pooling begins. states: num_layers + 1 values [batch * sequence, width]. kind: the model's, in the graph's name."""

    states: list[str]
    width: int
    kind: str
    takes_types: bool = False  # whether token_type_ids are an input


class Weights:
    """The float32 tensors of a folder, handed out by name and shape."""

    def __init__(self, folder: Path, tensors: Mapping[str, np.ndarray], prefix: str = ""):
        self.folder = folder
        self.tensors = plain_names(tensors, prefix)

    def take(self, name: str, *shape: int) -> np.ndarray:
        """The tensor of this name. Raises UserError where it is missing or of another shape."""
        if name not in self.tensors:
            raise UserError(f"{self.folder}: tensor {name} is missing; it holds {sorted(self.tensors)[:3]}, ...")
        if (actual := self.tensors[name].shape) != shape:
            raise UserError(f"{self.folder}: tensor {name} has shape {actual}, but config.json asks for {shape}")
        return self.tensors[name]
