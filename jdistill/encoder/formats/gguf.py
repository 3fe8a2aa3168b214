"""GGUF files: architecture, weights dequantised to float32 without torch, tokenizer, and how a text is encoded.

Needs the package gguf (the extra [gguf]).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerFast

from jdistill.core.errors import UserError, first_line
from jdistill.core.json_files import Settings, parse_json, said
from jdistill.core.progress import log
from jdistill.encoder.formats.gguf_header import check_header
from jdistill.encoder.formats.gguf_tokenizer import read_tokenizer
from jdistill.encoder.formats.st_settings import prompts_of
from jdistill.models.architecture import ModelConfig
from jdistill.models.gguf_layout import GgufKind, inverse, renamed
from jdistill.models.registry import GGUF_KINDS

# llama.cpp's numbers of poolers; where it gives each token's state (0), a text's vector is taken as the mean.
POOLING_TYPES = {0: "mean", 1: "mean", 2: "cls", 3: "lasttoken"}
ENCODING_KEY = "jdistill.encoding"  # JSON of what llama.cpp has no field for: length and the end that is cut, normalisation, prompts
_SAFETENSORS = "is not read from GGUF; load the model from its Hugging Face folder, which says how"


class GgufFile(NamedTuple):
    """What a .gguf file holds.

    Args:
      config: the sizes.
      tensors: by Hugging Face's names, float32.
      tokenizer: of the file's own vocabulary.
      encoding: arguments of Encoder: pooling, and what else the file tells.
    """

    config: ModelConfig
    tensors: dict[str, np.ndarray]
    tokenizer: PreTrainedTokenizerFast
    encoding: dict[str, Any]


def read_gguf(path: Path) -> GgufFile:
    """What a .gguf file holds, its tensors dequantised.

    Raises: UserError where the package gguf is missing, the file is damaged, or its architecture, quantisation or tokenizer is none of
      those known.
    """
    try:
        import gguf
    except ImportError:
        raise UserError(f"{path}: reading GGUF needs the package gguf: pip install -e '.[gguf]'") from None
    check_header(path)
    try:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, OSError, IndexError, KeyError, OverflowError, TypeError, MemoryError) as error:
        if "GGMLQuantizationType" in str(error):
            raise UserError(
                f"{path}: a tensor's quantisation is none that the package gguf {version('gguf')} knows ({error}); a newer one may, or "
                "another quantisation of the model will do"
            ) from None
        raise UserError(
            f"{path} cannot be read ({first_line(error)}); it is truncated or not a GGUF file: fetch it again"
        ) from None
    name = fields.get("general.architecture")
    kind = GGUF_KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UserError(f"{path}: its architecture is {name!r}; jdistill reads {', '.join(GGUF_KINDS)}")
    if sum(int(tensor.data.nbytes) for tensor in reader.tensors) > path.stat().st_size:
        raise UserError(f"{path} cannot be read (its tensors overlap); it is damaged: fetch it again")
    if scaled := [tensor.name for tensor in reader.tensors if tensor.name.startswith("rope_")]:
        raise UserError(f"{path}: RoPE scaled by the tensor {scaled[0]} (Llama 3.1 and later) {_SAFETENSORS}")
    settings = Settings(fields, path)
    if (scaling := settings.text(f"{kind.name}.rope.scaling.type", "")) not in ("none", ""):
        raise UserError(f"{path}: RoPE scaled as {scaling!r} {_SAFETENSORS}")
    for key in ("rope.scaling.factor", "rope.scale_linear"):  # without a type llama.cpp takes it for linear
        if not scaling and settings.raw(f"{kind.name}.{key}", 1.0) not in (0.0, 1.0):
            raise UserError(f"{path}: RoPE scaled by {kind.name}.{key} {_SAFETENSORS}")
    config, tensors = kind.read(settings, _dequantised(reader.tensors, kind, settings))
    tokenizer = read_tokenizer(fields, path)
    return GgufFile(config, tensors, tokenizer, _encoding(settings, kind.name, config.causal, tokenizer))


def _dequantised(listed: Sequence[Any], kind: GgufKind, settings: Settings) -> dict[str, np.ndarray]:
    """The tensors that the architecture has, float32, by Hugging Face's names. Raises UserError where there is no matrix of tokens, or
    there are fewer layers than the fields tell of."""
    import gguf

    by_name, path = {tensor.name: tensor for tensor in listed}, settings.path
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in renamed(by_name, inverse(kind.names)).items():
        try:
            with np.errstate(all="ignore"):  # scales of a damaged block may leave float16's range
                values = gguf.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise UserError(
                f"{path}: tensor {tensor.name} is quantised as {tensor.tensor_type.name}, which cannot be dequantised "
                f"({error}); another quantisation of the model will do"
            ) from None
        tensors[name] = np.array(values, np.float32)
    table = tensors.get(f"{inverse(kind.names)['token_embd']}.weight")
    if table is None or table.ndim != 2 or not len(table):
        raise UserError(f"{path}: the tensor token_embd.weight is missing or no matrix; fetch the file again")
    layers = len({name.split(".")[1] for name in by_name if name.startswith("blk.")})
    if (told := settings.integer(f"{kind.name}.block_count", 1)) > layers:
        raise settings.fault(f"{kind.name}.block_count", f"is {told}, but the tensors are of {layers} layers")
    return tensors


def _encoding(settings: Settings, kind: str, causal: bool, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    """Arguments of Encoder; a causal model that does not say how it pools does so as a folder of it without modules.json. The tokenizer gets
    what no other field says of it.

    Raises: UserError for a pooler of rerankers, and for an ENCODING_KEY that is damaged.
    """
    key = f"{kind}.pooling_type"
    if (number := settings.integer(key, 0, default=0)) not in POOLING_TYPES:
        raise settings.fault(key, f"is {number}, as of a reranker; mean, cls and last (1 to 3) give a text's vector")
    if settings.raw(key, None) is None:
        pooling = "lasttoken" if causal else POOLING_TYPES[number]
        log.info("%s does not say how its vectors are pooled: %s", settings.path, pooling)
    else:
        pooling = POOLING_TYPES[number]
    encoding: dict[str, Any] = {"pooling": pooling}
    told = settings.text(ENCODING_KEY, "")
    if not told:
        return encoding
    values = parse_json(told, f"{settings.path}: {ENCODING_KEY}")
    if not isinstance(values, dict):
        raise settings.fault(ENCODING_KEY, f"holds {said(values)}, not an object like {{…}}")
    ours = Settings(values, settings.path)
    prompts, default = prompts_of(ours)
    encoding |= {"normalize": ours.flag("normalize", False), "prompts": prompts, "default_prompt": default}
    # As a tokenizer has them that was read from a folder: what it is saved by as well.
    tokenizer.truncation_side = side = ours.text("truncation_side", "right", among=("right", "left"))
    tokenizer.split_special_tokens = split = ours.flag("split_special_tokens", False)
    tokenizer.init_kwargs |= {"truncation_side": side, "split_special_tokens": split}
    return encoding | {"max_length": ours.integer("max_length", 1)}
