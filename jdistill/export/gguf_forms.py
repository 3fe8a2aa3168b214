"""An export as a .gguf file for llama.cpp, in float32, float16 and Q8_0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.gguf_writer import write_gguf
from jdistill.encoder.loading import load

GGUF_FILES = {"F32": "model.gguf", "F16": "model-f16.gguf", "Q8_0": "model-q8_0.gguf"}


def write_as(weights: str) -> Callable[[Encoder, Path, Sequence[str]], Path]:
    """How a form is written whose matrices are of this type: (model, folder, texts) -> its file, folder/gguf/NAME."""

    def write(model: Encoder, folder: Path, texts: Sequence[str] = ()) -> Path:
        out = folder / "gguf" / GGUF_FILES[weights]
        out.parent.mkdir(exist_ok=True)
        if model.default_prompt is not None:
            log.warning("llama.cpp puts no prompt before a text: begin each with %r", model.prompt_text())
        return write_gguf(model, out, weights)

    return write


def encode(model: Encoder, file: Path, texts: Sequence[str]) -> np.ndarray:
    """The vectors of a file, float32 [N, D], by jdistill's own reader, from the file alone."""
    return load(str(file)).encode(list(texts))
