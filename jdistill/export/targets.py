"""The forms of an export, one line each: how a form is written, and how it encodes, which one check holds against Flax."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.export import gguf_forms, onnx_forms, torch_forms
from jdistill.export.onnx.storage import graph_files
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.models.precision import exact_products
from jdistill.models.registry import architecture_of
from jdistill.retrieval.index import unit_rows

LEAST_COSINE = 0.99  # mean, between an int8 form and Flax


@dataclass(frozen=True)
class Target:
    """A form of an export.

    Args:
      framework: what runs it, for messages and the card.
      write: (model, exported folder, texts) -> the form's file or folder in it; texts: to measure activations on, if `calibrated`.
      encode: (model, what write returned, texts) -> vectors float32 [N, D].
      exact: float32, so that it differs from Flax by rounding alone; else its vectors have a mean cosine to Flax's of least_cosine.
      calibrated: whether it needs texts.
      needs: module without which it is neither written nor read; "" where jdistill itself needs all of it.
      least_cosine: of a form that is not exact, else unused.
    """

    framework: str
    write: Callable[[Encoder, Path, Sequence[str]], Path]
    encode: Callable[[Encoder, Path, Sequence[str]], np.ndarray]
    exact: bool = True
    calibrated: bool = False
    needs: str = ""
    least_cosine: float = LEAST_COSINE

    @property
    def available(self) -> bool:
        """Whether what it needs is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None


SENTENCE_TRANSFORMERS = "sentence_transformers"
EXTRAS = {SENTENCE_TRANSFORMERS: "torch", "gguf": "gguf"}  # module -> the extra that brings it
TARGETS: dict[str, Target] = {
    "onnx": Target("ONNX Runtime", onnx_forms.write, onnx_forms.encode),
    "sentence-transformers": Target(
        "sentence-transformers", torch_forms.folder_itself, torch_forms.encode, needs=SENTENCE_TRANSFORMERS
    ),
    "onnx-float16": Target(
        "ONNX Runtime in float16", onnx_forms.write_float16, onnx_forms.encode, exact=False, least_cosine=0.999
    ),
    "onnx-int8": Target("ONNX Runtime in int8", onnx_forms.write_int8, onnx_forms.encode, exact=False),
    "onnx-int8-calibrated": Target(
        "ONNX Runtime in int8", onnx_forms.write_int8, onnx_forms.encode, exact=False, calibrated=True
    ),
    "torch-int8": Target(
        "torch in int8", torch_forms.write_int8, torch_forms.encode, exact=False, needs=SENTENCE_TRANSFORMERS
    ),
    "torch-int8-calibrated": Target(
        "torch in int8",
        torch_forms.write_int8,
        torch_forms.encode,
        exact=False,
        calibrated=True,
        needs=SENTENCE_TRANSFORMERS,
    ),
    "gguf": Target("GGUF", gguf_forms.write_as("F32"), gguf_forms.encode, needs="gguf"),
    "gguf-float16": Target(
        "GGUF in float16", gguf_forms.write_as("F16"), gguf_forms.encode, exact=False, needs="gguf", least_cosine=0.999
    ),
    "gguf-q8_0": Target("GGUF in Q8_0", gguf_forms.write_as("Q8_0"), gguf_forms.encode, exact=False, needs="gguf"),
}


def target_of(name: str, key: str = "--target") -> Target:
    """The form of this name.

    Args:
      key: the flag that named it.

    Raises: UserError for a form that there is not, or that lacks what it needs.
    """
    if name not in TARGETS:
        raise UserError(f"{key}={name}: there is no such form of an export; there are {', '.join(TARGETS)}")
    if not TARGETS[name].available:
        needs = TARGETS[name].needs
        raise UserError(f"{key}={name} needs {needs}: pip install -e '.[{EXTRAS[needs]}]'")
    return TARGETS[name]


def in_float32(model: Encoder) -> Encoder:
    """The model as an export's forms are held against it, whatever type it computes in by itself."""
    return model if model.dtype == "float32" else replace(model, dtype="float32")


def add_form(model: Encoder, folder: Path, name: str, texts: Sequence[str] = ()) -> Path:
    """Writes a further form of an exported folder and holds it against Flax.

    Returns: its file or folder. Raises: UserError where it differs from Flax (check), and leaves nothing of it, the export itself excepted.
    """
    target, model = target_of(name), in_float32(model)
    out = target.write(model, folder, texts if target.calibrated else ())
    try:
        with exact_products():
            expected = model.encode(list(PROBE_TEXTS))
        figure = check_form(model, target, out, name, expected)
    except BaseException:
        if out != folder:  # the export itself, and what else lies in it
            remove(out)
        raise
    if out.is_file():
        num_bytes = sum(path.stat().st_size for path in graph_files(out))
    else:
        num_bytes = max(path.stat().st_size for path in out.rglob("*") if path.is_file())
    smaller = 100 * (1 - num_bytes / (4 * model.num_params))
    what = f"max abs difference from it {figure:.2g}" if target.exact else f"mean cosine to it {figure:.5f}"
    shown = out.relative_to(folder)  # which is a temporary place of the whole export
    log.info("%s: %.1f MB, %.0f %% smaller than float32; %s", shown, num_bytes / 1e6, smaller, what)
    return out


def remove(form: Path) -> None:
    """Takes away what Target.write returned: a folder, or a file and, of a graph, its data file."""
    if form.is_dir():
        shutil.rmtree(form)
    else:
        for path in graph_files(form):
            path.unlink()


def check_form(model: Encoder, target: Target, form: Path, name: str, expected: np.ndarray) -> float:
    """Encodes the probe texts by a form, and compares the vectors with Flax's.

    Args:
      form: its file or folder, as Target.write returns it.
      name: of the form, for messages.
      expected: Flax's vectors of the probe texts, float32 [N, D].

    Returns: the max abs difference, or of a form that is not exact the mean cosine.

    Raises: UserError where they differ by more than float32 explains, or than its least_cosine allows.
    """
    texts = list(PROBE_TEXTS)
    vectors = np.asarray(target.encode(model, form, texts), np.float32)
    if not target.exact:
        cosines = (unit_rows(expected) * unit_rows(vectors)).sum(1)
        cosines[~expected.any(1) & ~vectors.any(1)] = 1  # of a text without a token, such as an empty one of a decoder
        cosine = float(cosines.mean())
        if not cosine >= target.least_cosine:
            raise UserError(
                f"the vectors of {name} have a mean cosine of {cosine:.4f} to Flax's, below {target.least_cosine}; nothing was written"
                + (
                    "; without calibration activations are scaled as they come, which is closer"
                    if target.calibrated
                    else ""
                )
            )
        return cosine
    tolerance = tolerance_of(model, expected)
    difference = float(np.abs(vectors - expected).max())
    if not difference <= tolerance:
        raise UserError(
            f"the export encodes the {len(texts)} probe texts differently in {target.framework} than in Flax: max abs {difference:.2e}, "
            f"more than {tolerance:.0e}; nothing was written"
        )
    return difference


def tolerance_of(model: Encoder, expected_NxD: np.ndarray) -> float:
    """The max abs difference that float32 explains: it rounds in proportion to the numbers' size, and vectors that are not normalised may have
    any length.

    Args:
      expected_NxD: Flax's vectors.
    """
    length = float(np.sqrt(np.square(expected_NxD).sum(1).mean()))
    return length * architecture_of(model.config).tolerance
