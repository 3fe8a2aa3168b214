"""How an ONNX graph lies on disk: one file, or above protobuf's 2 GiB a file of nodes and `NAME_data` with the weights beside it.

The data file's name and its one relative location are those of optimum and sentence-transformers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, set_external_data, uses_external_data

from jdistill.core.errors import UserError
from jdistill.core.files import TEMPORARY

INLINE_BYTES = 3 * 2**29  # 1.5 GiB of constants; protobuf ends at 2, and nodes, names and shapes need room too
LEAST_BYTES = 1024  # a smaller constant stays with the nodes, where shape inference reads it
ALIGNMENT = 2**16  # bytes, on which every system can map a file into memory

Constants = list[tuple[str, np.ndarray]]


def data_file(graph: Path) -> Path:
    """Where a graph's weights lie if they are not in the graph's own file."""
    return graph.with_name(f"{graph.name}_data")


def graph_files(graph: Path) -> list[Path]:
    """The graph's file and, if there is one, its data file."""
    return [graph, *(path for path in [data_file(graph)] if path.is_file())]


@contextmanager
def placing(graph: Path) -> Iterator[Path]:
    """Gives a path of the same name in a folder of its own; what is written there takes its place at the end.

    Args:
      graph: the graph's file; its folder is made. Its data file moves with it, and an older one is taken away.

    Raises: whatever the body raises; `graph` is then as it was.
    """
    graph.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=graph.parent, prefix=TEMPORARY) as scratch:
        beside = Path(scratch) / graph.name
        yield beside
        if data_file(beside).is_file():
            graph.unlink(missing_ok=True)  # an older graph never stands beside newer weights, even if killed here
            os.replace(data_file(beside), data_file(graph))
            os.replace(beside, graph)
        else:
            os.replace(beside, graph)
            data_file(graph).unlink(missing_ok=True)


def write_graph(model: onnx.ModelProto, constants: Constants, path: Path, inline_bytes: int | None = None) -> None:
    """Writes a graph and its constants; they are written one by one, so that memory holds the weights once if they lie outside.

    Args:
      model: the graph without initialisers, which are added to it.
      constants: name and array of each; the list is emptied on the way, so that memory is given back.
      path: the graph's file, in a folder that is there.
      inline_bytes: above how many bytes of constants they go into the data file; None: INLINE_BYTES.
    """
    if sum(value.nbytes for _, value in constants) > _limit(inline_bytes):
        with data_file(path).open("wb") as data:
            for name, value in _taken(constants):
                _add(model, name, value, data)
    else:
        for name, value in _taken(constants):
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    path.write_bytes(model.SerializeToString())


def save_model(model: onnx.ModelProto, path: Path, inline_bytes: int | None = None) -> None:
    """Writes a graph that holds its initialisers, as onnx.load gives it.

    Args:
      model: the graph; where its weights go into the data file, it no longer holds them afterwards.
      path, inline_bytes: as of write_graph().
    """
    tensors = [(tensor, len(tensor.raw_data)) for tensor in model.graph.initializer]
    if sum(size for _, size in tensors) > _limit(inline_bytes):
        end = 0
        for tensor, size in tensors:
            if size >= LEAST_BYTES:
                start = end + -end % ALIGNMENT
                set_external_data(tensor, data_file(path).name, start, size)
                end = start + size
    with placing(path) as beside:
        onnx.save_model(model, beside)


def check_data(graph: Path) -> None:
    """Raises UserError where a graph's weights lie in another file that is missing or too short; damage of the graph is not told."""
    try:
        model = onnx.load(graph, load_external_data=False)
    except (OSError, DecodeError):
        return
    needed: dict[str, int] = {}
    for tensor in filter(uses_external_data, model.graph.initializer):
        info = ExternalDataInfo(tensor)
        end = (info.offset or 0) + (info.length or 0)
        needed[info.location] = max(end, needed.get(info.location, 0))
    advice = f"{graph.name} keeps its weights there; copy both files again, or export again"
    for location, end in needed.items():
        data = graph.parent / location
        if not data.is_file():
            raise UserError(f"{data} is missing: {advice}")
        if (there := data.stat().st_size) < end:
            raise UserError(f"{data} was cut off, {there:,} bytes of {end:,}: {advice}")


def _limit(inline_bytes: int | None) -> int:
    return INLINE_BYTES if inline_bytes is None else inline_bytes


def _taken(constants: Constants) -> Iterator[tuple[str, np.ndarray]]:
    """The constants in their order, each of which leaves the list."""
    constants.reverse()
    while constants:
        yield constants.pop()


def _add(model: onnx.ModelProto, name: str, value: np.ndarray, data: BinaryIO) -> None:
    """Adds an initialiser to a graph; many values go to the end of `data`, the open data file, few stay in the graph."""
    if value.nbytes < LEAST_BYTES:
        model.graph.initializer.append(numpy_helper.from_array(value, name))
        return
    data.write(bytes(-data.tell() % ALIGNMENT))
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor = TensorProto(name=name, data_type=kind, dims=value.shape, raw_data=b"")
    set_external_data(tensor, Path(data.name).name, data.tell(), value.nbytes)
    tensor.ClearField("raw_data")
    model.graph.initializer.append(tensor)
    data.write(value.data)
