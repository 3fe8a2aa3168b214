"""int8 graphs for ONNX Runtime from an exported float32 one: weights and embeddings in a byte each, a scale a channel.

dynamic: activations are scaled text by text, as they come. calibrated: by ranges measured beforehand on given texts, which
some runtimes and accelerators need.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from jdistill.core.errors import UserError

QUANTIZED = ["MatMul", "Gemm", "Gather"]
KINDS = ("int8", "int8-calibrated")


def quantize(graph: Path, out: Path, batches: Sequence[Mapping[str, np.ndarray]] = ()) -> Path:
    """Writes the int8 form of a float32 graph to `out`, whole or not at all.

    batches: tokenised texts (input_ids, attention_mask, …), int64 [B, L], to measure the activations' ranges on; none: the
    dynamic form. Raises UserError where ONNX Runtime cannot quantise the graph.
    """
    # Its advice to pre-process a graph is meant for graphs with shapes left open inside, which ours have not.
    root = logging.getLogger()
    level = root.level
    root.setLevel(max(level, logging.ERROR))
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        beside = Path(scratch) / out.name
        try:
            if batches:
                quantize_static(
                    graph,
                    beside,
                    _Batches(batches),
                    quant_format=QuantFormat.QDQ,
                    op_types_to_quantize=QUANTIZED,
                    per_channel=True,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                    calibrate_method=CalibrationMethod.MinMax,
                    # Outputs stay float32: the next operator's input is measured anyway. Ranges are averaged over batches.
                    extra_options={"OpTypesToExcludeOutputQuantization": QUANTIZED, "CalibMovingAverage": True},
                )
            else:
                quantize_dynamic(
                    graph, beside, op_types_to_quantize=QUANTIZED, per_channel=True, weight_type=QuantType.QInt8
                )
        except (ValueError, RuntimeError, AssertionError) as error:
            raise UserError(f"ONNX Runtime cannot quantise {graph}: {error}") from None
        finally:
            root.setLevel(level)
        os.replace(beside, out)
    return out


class _Batches(CalibrationDataReader):
    def __init__(self, batches: Sequence[Mapping[str, np.ndarray]]):
        self._left = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        batch = next(self._left, None)
        return None if batch is None else dict(batch)
