"""int8 forms of an export, each held against Flax."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.export import torch_int8
from jdistill.export.check import graph_inputs
from jdistill.export.onnx import graph as onnx_graph
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.quantize import KINDS, quantize
from jdistill.retrieval.index import unit_rows

LEAST_COSINE = 0.99  # mean, between an int8 graph and Flax


def quantized_for_torch(model: Encoder, folder: Path, kind: str, texts: list[str]) -> Path:
    """Writes the int8 form of an exported folder for torch, the folder torch_int8 or torch_int8_calibrated in it.

    Raises UserError, and writes nothing, as quantized() does, and where the torch extra is missing.
    """
    out = torch_int8.save(model, folder, folder / f"torch_{kind.replace('-', '_')}", texts)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        shutil.rmtree(out)
        raise UserError("--quantize for torch needs the torch extra: pip install 'jdistill[torch]'") from None
    loaded = SentenceTransformer(str(out), device="cpu", trust_remote_code=True)  # code that we have just written
    theirs = loaded.encode(list(PROBE_TEXTS), show_progress_bar=False)
    sizes = (folder / "model.safetensors").stat().st_size, (out / "int8.safetensors").stat().st_size
    return _close_enough(model, theirs, sizes, out, f"{kind} for torch")


def quantized(model: Encoder, folder: Path, kind: str, texts: list[str]) -> Path:
    """Writes the int8 graph of an exported folder (quantize.KINDS), for which texts are needed if it is calibrated.

    Raises UserError, and writes nothing, where its vectors of the probe texts have a mean cosine to Flax's below 0.99.
    """
    out = folder / "onnx" / f"model_{kind.replace('-', '_')}.onnx"
    graph = folder / "onnx" / "model.onnx"
    keep_graph = graph.is_file()
    if not keep_graph:
        graph = onnx_graph.save(folder)
    batches = (
        [graph_inputs(model, texts[i : i + 16]) for i in range(0, len(texts), 16)]
        if KINDS[kind] == "calibrated"
        else []
    )
    try:
        quantize(graph, out, batches)
        theirs = onnx_graph.run(out, graph_inputs(model, list(PROBE_TEXTS)))
        sizes = graph.stat().st_size, out.stat().st_size
    finally:
        if not keep_graph:
            graph.unlink()
    return _close_enough(model, theirs, sizes, out, kind)


def _close_enough(model: Encoder, theirs: np.ndarray, sizes: tuple[int, int], out: Path, kind: str) -> Path:
    """The int8 form `out`, or, where its vectors of the probe texts stray, a UserError and nothing. sizes: bytes before, after."""
    cosine = float((unit_rows(model.encode(list(PROBE_TEXTS))) * unit_rows(theirs)).sum(1).mean())
    if cosine < LEAST_COSINE:
        shutil.rmtree(out) if out.is_dir() else out.unlink()
        raise UserError(
            f"the vectors of {kind} have a mean cosine of {cosine:.4f} to Flax's, below {LEAST_COSINE}; nothing was written"
            + ("; --quantize=int8 scales each text by itself and is closer" if "calibrated" in kind else "")
        )
    log.info(
        "%s: %.1f MB, %.0f %% smaller than float32; mean cosine to it %.4f",
        out, sizes[1] / 1e6, 100 * (1 - sizes[1] / sizes[0]), cosine,
    )  # fmt: skip
    return out
