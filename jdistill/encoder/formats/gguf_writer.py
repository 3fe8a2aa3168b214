"""An Encoder as one .gguf file for llama.cpp: architecture, weights, tokenizer, pooling.

Needs the package gguf (the extra [gguf]).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.files import writing_beside
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.gguf import ENCODING_KEY, POOLING_TYPES
from jdistill.encoder.formats.gguf_vocabulary import tokenizer_fields
from jdistill.models.pooling import LAST, POOLERS
from jdistill.models.registry import architecture_of

FILE_TYPES = {"F32": 0, "F16": 1, "Q8_0": 7}  # type of the weights -> llama.cpp's number for such a file
Q8_BLOCK = 32  # weights that share a scale
KEPT = (
    "position_embd.weight",
    "token_types.weight",
)  # float32 in every file, as are vectors: llama.cpp adds them as they are


def write_gguf(model: Encoder, path: Path, weights: str = "F32") -> Path:
    """Writes a model, and returns `path`.

    Args:
      weights: type of the matrices, in FILE_TYPES; Q8_0 is a byte a weight and a float16 scale for 32 of them.

    Raises: UserError for an architecture, a tokenizer, a pooler or a projection that llama.cpp does not compute.
    """
    import gguf

    pooling = pooling_type(model)
    written = architecture_of(model.config).gguf_model(model.config, model.params, model.max_length)
    about = {"general.type": "model", "general.file_type": FILE_TYPES[weights]}
    if weights == "Q8_0":
        about["general.quantization_version"] = gguf.GGML_QUANT_VERSION
    fields = about | written.fields | {f"{written.kind}.pooling_type": pooling}
    fields |= tokenizer_fields(model.tokenizer, model.config.vocab_size) | {ENCODING_KEY: encoding_of(model)}
    with writing_beside(path) as beside:
        out = gguf.GGUFWriter(beside, written.kind)
        for name, value in fields.items():
            _add(out, name, value)
        _write_tensors(out, written.tensors, weights)
        out.close()
    return path


def _write_tensors(out: Any, tensors: Mapping[str, np.ndarray], weights: str) -> None:
    import gguf

    types = {name: _type_of(name, tensor, weights) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        kind = gguf.GGMLQuantizationType[types[name]]
        shape = gguf.quant_shape_to_byte_shape(tensor.shape, kind) if types[name] == "Q8_0" else tensor.shape
        dtype = {"F32": np.float32, "F16": np.float16, "Q8_0": np.uint8}[types[name]]
        out.add_tensor_info(name, shape, np.dtype(dtype), int(np.prod(shape)) * np.dtype(dtype).itemsize, kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    for name, tensor in tensors.items():  # one at a time, so that memory holds one more tensor, not the model again
        with np.errstate(
            over="ignore"
        ):  # a weight beyond float16 becomes infinite, which the check of the form refuses
            out.write_tensor_data(gguf.quantize(tensor, gguf.GGMLQuantizationType[types[name]]))


def pooling_type(model: Encoder) -> int:
    """llama.cpp's number of the model's pooler. Raises UserError for what llama.cpp does not do behind the last layer."""
    pooler = POOLERS[model.pooling]
    numbers = {name: number for number, name in POOLING_TYPES.items()}
    if pooler.layers != LAST or pooler.over_layers != "mean" or pooler.over_tokens not in numbers:
        raise UserError(
            f"GGUF: llama.cpp has no pooler {model.pooling}, only mean, cls and lasttoken of the last layer; --plain exports the nearest "
            "of sentence-transformers', or serve this student by sentence-transformers or ONNX Runtime"
        )
    if model.dense:
        raise UserError(
            f"GGUF: the student projects its pooled vector ({model.pooled_width} to {model.dim} numbers), which llama.cpp does for "
            "EmbeddingGemma alone; serve it by sentence-transformers or ONNX Runtime, or train one without a projection"
        )
    if model.prompts and not model.include_prompt:
        raise UserError("GGUF: the student's pooler leaves the prompt's tokens out, which llama.cpp cannot")
    return numbers[pooler.over_tokens]


def encoding_of(model: Encoder) -> str:
    """JSON of what decides the vectors and has no field of llama.cpp's, by sentence-transformers' keys, for jdistill to read."""
    told: dict[str, Any] = {"max_length": model.max_length, "normalize": model.normalize}
    if model.tokenizer.truncation_side != "right":
        told["truncation_side"] = model.tokenizer.truncation_side
    if model.tokenizer.split_special_tokens:
        told["split_special_tokens"] = True
    return json.dumps(told | {"prompts": model.prompts, "default_prompt_name": model.default_prompt})


def _type_of(name: str, tensor: np.ndarray, weights: str) -> str:
    """How a tensor is written: float32 a vector, float16 a matrix whose rows are no whole blocks, else as asked."""
    if tensor.ndim < 2 or name in KEPT:
        return "F32"
    return "F16" if weights == "Q8_0" and tensor.shape[-1] % Q8_BLOCK else weights


def _add(out: Any, name: str, value: Any) -> None:
    """A field, of the type that llama.cpp asks for: its whole numbers are unsigned, those in lists signed."""
    adders = {bool: out.add_bool, int: out.add_uint32, float: out.add_float32, str: out.add_string}
    if name == "tokenizer.ggml.precompiled_charsmap":
        out.add_array(name, bytes(value))
    else:
        adders.get(type(value), out.add_array)(name, value)
