"""An export as sentence-transformers loads it: the folder itself, and its int8 form for torch on CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jdistill.encoder.encoder import Encoder
from jdistill.export import torch_int8
from jdistill.export.written_folder import load_written, without_reports


def folder_itself(model: Encoder, folder: Path, texts: Sequence[str] = ()) -> Path:
    """Nothing more is written: an exported folder is a model of sentence-transformers."""
    return folder


def write_int8(model: Encoder, folder: Path, texts: Sequence[str] = ()) -> Path:
    """The folder torch_int8 or, where texts calibrate it, torch_int8_calibrated in the exported one."""
    return torch_int8.save_int8_folder(
        model, folder, folder / ("torch_int8_calibrated" if texts else "torch_int8"), texts
    )


def encode(model: Encoder, folder: Path, texts: Sequence[str]) -> np.ndarray:
    """The vectors of a folder, float32 [N, D], in sentence-transformers."""
    model_of_folder = load_written(folder)
    with without_reports():
        vectors: np.ndarray = model_of_folder.encode(list(texts), show_progress_bar=False)
    return vectors
