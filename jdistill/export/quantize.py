"""int8 graphs for ONNX Runtime from an exported float32 one: weights and embeddings in a byte each, a scale a channel.

dynamic: activations are scaled as they come, those of a batch together, so that a text's vector depends on its neighbours a little.
calibrated: by ranges measured beforehand on given texts, which
some runtimes and accelerators need.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from jdistill.core.errors import UserError
from jdistill.export.onnx import storage
from jdistill.export.onnx.graph import inputs_of

QUANTIZED = ["MatMul", "Gemm", "Gather"]
QUANTIZATIONS = ("int8", "int8-calibrated")
# Unsigned: a processor without VNNI adds products of unsigned activations and signed weights in int16, where they overflow.
WEIGHT_TYPE = QuantType.QUInt8


def quantize(graph: Path, out: Path, batches: Sequence[Mapping[str, np.ndarray]] = ()) -> Path:
    """Writes the int8 form of a float32 graph to `out`, whole or not at all; above storage.INLINE_BYTES with a data file.

    Args:
      batches: tokenised texts to measure the activations' ranges on, each as inputs_of has them; none: the dynamic form.

    Returns: `out`. Raises: UserError where ONNX Runtime cannot quantise the graph.
    """
    large = len(storage.graph_files(graph)) > 1
    # Its advice to pre-process a graph is meant for graphs with shapes left open inside, which ours have not.
    root = logging.getLogger()
    level = root.level
    root.setLevel(max(level, logging.ERROR))
    with storage.placing(out) as beside:
        made = beside.with_name("made.onnx")
        try:
            if batches:
                quantize_static(
                    graph,
                    made,
                    _Batches(graph, batches),
                    quant_format=QuantFormat.QDQ,
                    op_types_to_quantize=QUANTIZED,
                    per_channel=True,
                    activation_type=QuantType.QUInt8,
                    weight_type=WEIGHT_TYPE,
                    use_external_data_format=large,
                    calibrate_method=CalibrationMethod.MinMax,
                    # Outputs stay float32: the next operator's input is measured anyway. Ranges are averaged over batches.
                    extra_options={"OpTypesToExcludeOutputQuantization": QUANTIZED, "CalibMovingAverage": True},
                )
            else:
                quantize_dynamic(
                    graph,
                    made,
                    op_types_to_quantize=QUANTIZED,
                    per_channel=True,
                    weight_type=WEIGHT_TYPE,
                    use_external_data_format=large,
                )
        except (ValueError, RuntimeError, AssertionError) as error:
            raise UserError(f"ONNX Runtime cannot quantise {graph}: {error}") from None
        finally:
            root.setLevel(level)
        if large:  # ONNX Runtime names the data file its own way, and makes one however little is left
            storage.save_model(onnx.load(made), beside)
        else:
            os.replace(made, beside)
    return out


class _Batches(CalibrationDataReader):
    def __init__(self, graph: Path, batches: Sequence[Mapping[str, np.ndarray]]):
        names = [value.name for value in onnx.load(graph, load_external_data=False).graph.input]
        self._left = (inputs_of(names, batch) for batch in batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)
