"""An exported folder's int8 form for torch on CPU: a folder beside it that sentence-transformers loads.

Every linear layer and embedding of the transformer in a byte a weight, a scale a row; what follows it (pooling, projections,
normalisation) stays as it is. The arithmetic is torch's own, by st_modules/int8_transformer.py, which the folder carries.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import TEMPORARY, write_json
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import CUSTOM
from jdistill.encoder.formats.tensors import write_tensors
from jdistill.encoder.torch_backend import has_sentence_transformers
from jdistill.export.written_folder import load_written
from jdistill.models.registry import architecture_of

MODULE = "int8_transformer"
# How much of a channel's range the weights take over. The paper's 0.5 is for large language models; MiniLM's few large channels
# behind the GELU need more (mean cosine 0.914 with 0.5, 0.995 with 0.8).
ALPHA = 0.8
TORCH_CALIBRATION_BATCH = 16  # calibration texts at once


def save_int8_folder(model: Encoder, plain: Path, out: Path, texts: Sequence[str] = ()) -> Path:
    """Writes the int8 form of the exported folder `plain`, which holds `model`, to the folder `out`.

    texts: to measure the range of each layer's inputs on; none: inputs are scaled as they come. Raises UserError for a decoder
    with bidirectional attention, which has a transformer module of its own, and where texts need torch that is not there.
    """
    rows = json.loads((plain / "modules.json").read_text())
    if rows[0]["type"].rpartition(".")[2] != "Transformer":
        raise UserError(f"int8 for torch: {rows[0]['type']} cannot be combined with it; int8 for ONNX Runtime can")
    tensors = architecture_of(model.config).module_tensors(model.config, model.params)
    tensors = quantized_rows(tensors | (smoothed(tensors, largest_inputs(plain, texts)) if texts else {}))
    others = ("model.safetensors", "onnx", "gguf", "README.md", "torch_int8*", out.name, f"{TEMPORARY}*")
    skipped = shutil.ignore_patterns(*others)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=TEMPORARY) as scratch:
        new = Path(scratch) / out.name
        shutil.copytree(
            plain, new, ignore=lambda folder, names: skipped(folder, names) if Path(folder) == plain else set()
        )
        write_tensors(tensors, new / "int8.safetensors")
        shutil.copyfile(CUSTOM / f"{MODULE}.py", new / f"{MODULE}.py")
        rows[0]["type"] = f"{MODULE}.Int8Transformer"
        write_json(new / "modules.json", rows)
        shutil.rmtree(out, ignore_errors=True)  # an older one stays until this one is whole
        os.replace(new, out)
    return out


def quantized_rows(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every matrix NAME.weight as int8, with NAME.scale float32 for each row: its largest magnitude over 127."""
    quantized: dict[str, np.ndarray] = {}
    for name, x in tensors.items():
        if x.ndim != 2:
            quantized[name] = x
            continue
        scale = np.maximum(np.abs(x).max(1), 1e-12) / 127
        quantized[name] = np.rint(x / scale[:, None]).astype(np.int8)
        quantized[name.removesuffix("weight") + "scale"] = scale.astype(np.float32)
    return quantized


def smoothed(tensors: dict[str, np.ndarray], largest: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """NAME.weight [out, in] of each layer times its NAME.input_scale [in], by which its inputs are to be divided.

    Inputs of one scale for all channels lose what is small beside a few large channels, so each channel's range is shared
    between input and weight: s = max|x|^alpha / max|w|^(1 - alpha) (SmoothQuant, Xiao et al. 2023, eq. 4). largest: max|x| [in].
    """
    scaled: dict[str, np.ndarray] = {}
    for name, x_in in largest.items():
        weight = tensors[f"{name}.weight"]
        s_in = np.maximum(x_in, 1e-6) ** ALPHA / np.maximum(np.abs(weight).max(0), 1e-6) ** (1 - ALPHA)
        scale_in = (s_in * (x_in / s_in).max() / 127).astype(np.float32)
        scaled |= {f"{name}.weight": weight * scale_in, f"{name}.input_scale": scale_in}
    return scaled


def largest_inputs(folder: Path, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Linear layer of the float32 folder -> the largest magnitude of each of its inputs over the texts, float32 [in]."""
    if not has_sentence_transformers():
        raise UserError("calibrating int8 for torch needs the torch extra: pip install -e '.[torch]'")
    model = load_written(folder)
    import torch  # which the library has imported

    transformer: Any = model[0].auto_model
    seen: dict[str, np.ndarray] = {}

    def watch(name: str) -> Any:
        def look(_: Any, inputs: tuple[Any, ...]) -> None:
            largest = inputs[0].detach().abs().flatten(0, -2).amax(0).numpy()
            seen[name] = np.maximum(seen.get(name, largest), largest)

        return look

    # A pooler that the folder has no weights for is not ours to quantise.
    layers = {name: layer for name, layer in transformer.named_modules() if isinstance(layer, torch.nn.Linear)}
    hooks = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers.items() if "pooler" not in name]
    model.encode(list(texts), batch_size=TORCH_CALIBRATION_BATCH, show_progress_bar=False)
    for hook in hooks:
        hook.remove()
    return seen
