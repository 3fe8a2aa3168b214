"""A graph whose weights are kept in float16 and cast to float32 where it is loaded: half the bytes on disk and on the wire, the same arithmetic.

The cast stands in the graph, so that every runtime reads it, those without float16 kernels too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from jdistill.core.errors import UserError
from jdistill.export.onnx import storage

KEPT_BYTES = 1024  # a smaller constant stays as it is
LARGEST_FLOAT16 = float(np.finfo(np.float16).max)


def halve(graph: Path, out: Path) -> Path:
    """Writes the float16 form of a float32 graph to `out`, whole or not at all.

    Returns: `out`. Raises: UserError for a weight that float16 cannot hold.
    """
    model = onnx.load(graph)
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT or len(tensor.raw_data) < KEPT_BYTES:
            continue
        weights = numpy_helper.to_array(tensor)
        if np.abs(weights).max() > LARGEST_FLOAT16:
            raise UserError(
                f"{tensor.name} of {graph.name} holds numbers above {LARGEST_FLOAT16:g}, which float16 has not"
            )
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(weights.astype(np.float16), f"{name}_float16"))
        casts.append(helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT, name=f"{name}_cast"))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    storage.save_model(model, out)
    return out
