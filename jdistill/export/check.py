"""Writes an export, and holds each of its forms against Flax."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.folders import replacing
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import (
    WRITTEN,
    custom_files,
    write_files,
    write_weights,
)
from jdistill.evals.collapse import effective_rank
from jdistill.export.onnx import graph as onnx_graph
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.models.registry import architecture_of

KIND = "export"  # of the seal


def export(
    model: Encoder,
    out: Path,
    onnx: bool = False,
    add: Sequence[Callable[[Path], Mapping[str, float] | None]] = (),
    overwrite: bool = False,
    in_run: bool = False,
) -> dict[str, float]:
    """Writes `model` to the folder `out` and returns the checks: framework -> max abs difference from Flax.

    Args:
      out: a new folder, an empty one, or an export of ours, which is replaced.
      onnx: leave the graph (pooling and normalisation included) in out/onnx/model.onnx.
      add: functions that write further files into the folder before it takes its place; what they return joins the checks.
      overwrite: replace whatever is in `out`.
      in_run: `out` is a run's own, which may be from before exports had a seal.

    Raises: UserError, and leaves `out` as it was, if a check differs by more than 1e-4 (decoders: 1e-3) of the vectors' length, and if
    `out` holds anything that is not ours.
    """
    checks: dict[str, float] = {}
    legacy = WRITTEN if in_run else ()
    about = {"checks": checks, "settings": {"onnx": onnx}}
    with replacing(out, KIND, key="--out", overwrite=overwrite, legacy=legacy, **about) as beside:
        write_files(model, beside)
        write_weights(model, beside)
        checks |= check(model, beside, keep_onnx=onnx)
        for write in add:
            checks |= write(beside) or {}
    log.info(
        "exported to %s; max abs difference from Flax: %s",
        out,
        ", ".join(f"{name} {value:.1e}" for name, value in checks.items()),
    )
    if "sentence-transformers" not in checks:
        log.info(
            "torch and sentence-transformers are not installed, so the folder was checked through its ONNX graph alone"
        )
    return checks


def check(model: Encoder, folder: Path, keep_onnx: bool) -> dict[str, float]:
    """Encodes the probe texts from the files of `folder` with each framework at hand: name -> max abs difference from Flax.

    Raises UserError where one is more than float32 explains.
    """
    texts = list(PROBE_TEXTS)
    expected = model.encode(texts)
    if not effective_rank(expected):
        log.warning("WARNING: the model gives the same vector for each of %d different texts", len(texts))
    graph = onnx_graph.save(folder)
    checks = {"ONNX Runtime": _max_abs(onnx_graph.run(graph, graph_inputs(model, texts)), expected)}
    if not keep_onnx:
        shutil.rmtree(graph.parent)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        pass
    else:
        # Code of ours in the folder runs only if sentence-transformers is told so.
        loaded = SentenceTransformer(str(folder), device="cpu", trust_remote_code=bool(custom_files(model)))
        checks["sentence-transformers"] = _max_abs(loaded.encode(texts, show_progress_bar=False), expected)
    # float32 rounds in proportion to the numbers' size, and vectors that are not normalised may have any length.
    length = float(np.sqrt(np.square(expected).sum(1).mean()))
    tolerance = length * architecture_of(model.config).tolerance
    for framework, difference in checks.items():
        if not difference <= tolerance:
            raise UserError(
                f"the export encodes the {len(texts)} probe texts differently in {framework} than in Flax: max abs {difference:.2e}, "
                f"more than {tolerance:.0e}; nothing was written"
            )
    return checks


def graph_inputs(model: Encoder, texts: list[str]) -> dict[str, np.ndarray]:
    tokens = model.tokenizer(
        [model.prompts.get(model.default_prompt or "", "") + text for text in texts],
        truncation=True,
        max_length=model.max_length,
        padding=True,
        return_tensors="np",
    )
    return {name: np.asarray(value, np.int64) for name, value in tokens.items()}


def _max_abs(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(np.asarray(a, np.float32) - b).max())
