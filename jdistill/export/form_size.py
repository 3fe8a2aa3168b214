"""How large a form of an export is: the file of weights that was written, and what shapes alone tell before there is any."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jdistill.export.onnx.storage import graph_files
from jdistill.models.registry import ModelConfig, architecture_of

# Bytes beside the numbers, a tensor, a little more than there are: its name and, in a graph, the nodes that read it.
BESIDE_FLOAT32, BESIDE_TORCH_INT8, BESIDE_ONNX_INT8 = 250, 250, 700


def expected_bytes(form: str, config: ModelConfig) -> int:
    """Bytes of the weights of a form, at most a few thousandths above those of the file.

    Args:
      form: onnx, sentence-transformers, onnx-int8 or torch-int8, of export.targets.
      config: the sizes of a model that has no pooler with parameters and no projection.
    """
    architecture = architecture_of(config)
    shapes = architecture.shapes(config)
    numbers = {path: int(np.prod(shape)) for path, shape in shapes.items()}
    if form in ("onnx", "sentence-transformers"):
        return 4 * sum(numbers.values()) + BESIDE_FLOAT32 * len(shapes)
    of_onnx, table = form == "onnx-int8", "/".join(architecture.table_path)
    total = 0
    for path, shape in shapes.items():
        is_table = path.endswith("embedding")
        if len(shape) != 2 or (of_onnx and is_table and path != table):  # the graph adds the small tables unquantised
            total += 4 * numbers[path]
            continue
        # A scale for each output and, in the graph, a zero point; torch has one for each token.
        scales = 5 * shape[1] if of_onnx else 4 * shape[0 if is_table else 1]
        total += numbers[path] + scales
    return total + (BESIDE_ONNX_INT8 if of_onnx else BESIDE_TORCH_INT8) * len(shapes)


def weight_bytes(path: Path) -> int:
    """Bytes of the weights of a form that was written.

    Args:
      path: as Target.write returns it: a graph, or a folder of sentence-transformers.
    """
    if path.is_file():
        return sum(file.stat().st_size for file in graph_files(path))
    files = [*path.glob("*.safetensors"), *path.glob("[0-9]*_*/*.safetensors")]
    return sum(file.stat().st_size for file in files)
