"""Writes an export, and holds each of its forms against Flax."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jdistill.core.folders import replacing
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import (
    WRITTEN,
    write_files,
    write_weights,
)
from jdistill.evals.collapse import check_finite, effective_rank
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.targets import TARGETS, check_form, in_float32
from jdistill.models.precision import exact_products

EXPORT_SEAL = "export"  # of the seal
CHECKED_FORMS = ("onnx", "sentence-transformers")  # which every export has, and by which it is checked


def export(
    model: Encoder,
    out: str | os.PathLike[str],
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
    out = Path(out)
    checks: dict[str, float] = {}
    legacy = WRITTEN if in_run else ()
    about = {"checks": checks, "settings": {"onnx": onnx}}
    key = "the run's export" if in_run else "--out"
    with replacing(out, EXPORT_SEAL, key=key, overwrite=overwrite, legacy=legacy, **about) as beside:
        write_files(model, beside)
        write_weights(model, beside)
        checks |= check_folder(model, beside, keep_onnx=onnx)
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


def check_folder(model: Encoder, folder: Path, keep_onnx: bool) -> dict[str, float]:
    """Encodes the probe texts from the files of `folder` with each framework at hand: name -> max abs difference from Flax in float32.

    A graph cannot leave a prompt's tokens out of the pooling: a model that does is held against sentence-transformers alone, if it is there.

    Raises UserError where one is more than float32 explains, and where the model gives numbers that are not finite.
    """
    model = in_float32(model)
    with exact_products():
        expected = model.encode(list(PROBE_TEXTS))
    check_finite(expected, "the model")
    if not effective_rank(expected):
        log.warning("WARNING: the model gives the same vector for each of %d different texts", len(PROBE_TEXTS))
    checks = {}
    needs_graph = keep_onnx or model.include_prompt or not TARGETS["sentence-transformers"].available
    for name in CHECKED_FORMS:
        target = TARGETS[name]
        if target.available and (needs_graph or name != "onnx"):
            form = target.write(model, folder, ())
            checks[target.framework] = check_form(model, target, form, name, expected)
            if name == "onnx" and not keep_onnx:
                shutil.rmtree(form.parent)
    return checks
