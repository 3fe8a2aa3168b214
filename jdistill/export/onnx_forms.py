"""An export as a graph for ONNX Runtime, in float32, float16 and int8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jdistill.encoder.encoder import Encoder
from jdistill.export.onnx import graph as onnx_graph
from jdistill.export.onnx import storage
from jdistill.export.onnx.float16 import halve
from jdistill.export.quantize import quantize

CALIBRATION_BATCH = 16  # texts
# As sentence-transformers names what it quantises itself: by the type of the weights and the processor that its settings are for.
FLOAT16_GRAPH = "model_fp16.onnx"  # which transformers.js looks for
INT8_GRAPH, CALIBRATED_GRAPH = "model_quint8_avx2.onnx", "model_quint8_avx2_calibrated.onnx"


def write(model: Encoder, folder: Path, texts: Sequence[str] = ()) -> Path:
    """folder/onnx/model.onnx, float32, pooling and normalisation included; the weights of a large one in model.onnx_data."""
    return onnx_graph.save_graph(folder)


def write_int8(model: Encoder, folder: Path, texts: Sequence[str] = ()) -> Path:
    """folder/onnx/INT8_GRAPH or, where texts calibrate it, CALIBRATED_GRAPH."""
    out = folder / "onnx" / (CALIBRATED_GRAPH if texts else INT8_GRAPH)
    starts = range(0, len(texts), CALIBRATION_BATCH)
    with _float32_graph(folder) as graph:
        return quantize(graph, out, [graph_inputs(model, texts[i : i + CALIBRATION_BATCH]) for i in starts])


def write_float16(model: Encoder, folder: Path, texts: Sequence[str] = ()) -> Path:
    """folder/onnx/FLOAT16_GRAPH."""
    with _float32_graph(folder) as graph:
        return halve(graph, folder / "onnx" / FLOAT16_GRAPH)


@contextmanager
def _float32_graph(folder: Path) -> Iterator[Path]:
    """The folder's graph; where it has none, one that is made and taken away again."""
    graph = folder / "onnx" / "model.onnx"
    is_there = graph.is_file()
    if not is_there:
        graph = onnx_graph.save_graph(folder)
    try:
        yield graph
    finally:
        if not is_there:
            for path in storage.graph_files(graph):
                path.unlink()


def encode(model: Encoder, graph: Path, texts: Sequence[str]) -> np.ndarray:
    """The vectors of a graph, float32 [N, D], by the model's tokenizer."""
    return onnx_graph.run_graph(graph, graph_inputs(model, texts))


def graph_inputs(model: Encoder, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """A graph's inputs for texts as the model reads them, int64 [N, L]."""
    prompt = model.prompts.get(model.default_prompt or "", "")
    tokens = model.tokenizer(
        [prompt + text for text in texts],
        truncation=True,
        max_length=model.max_length,
        padding=True,
        return_tensors="np",
    )
    return {name: np.asarray(value, np.int64) for name, value in tokens.items()}
