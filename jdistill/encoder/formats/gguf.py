"""GGUF files of Llama-family decoders: architecture, weights dequantised to float32 without torch, and the tokenizer.

Needs the package gguf (the extra [gguf]).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from jdistill.core.errors import UserError, first_line
from jdistill.core.json_files import Settings
from jdistill.encoder.formats.gguf_header import check_header
from jdistill.encoder.formats.gguf_tokenizer import read_tokenizer
from jdistill.models.decoder.config import DecoderConfig, checked

# GGUF name without .weight or .bias, "blk.{i}." left out in layers -> Hugging Face name
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAMES = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}
GGUF_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_SAFETENSORS = "is not read from GGUF; load the model from its Hugging Face folder, which says how"


def read_gguf(path: Path) -> tuple[DecoderConfig, dict[str, np.ndarray], PreTrainedTokenizerFast]:
    """What a .gguf file holds.

    Returns: its sizes, its tensors under Hugging Face's names, dequantised to float32, and its tokenizer.

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
    kind = fields.get("general.architecture")
    if kind not in GGUF_ARCHITECTURES:
        raise UserError(f"{path}: its architecture is {kind!r}; jdistill reads {', '.join(GGUF_ARCHITECTURES)}")
    if sum(int(tensor.data.nbytes) for tensor in reader.tensors) > path.stat().st_size:
        raise UserError(f"{path} cannot be read (its tensors overlap); it is damaged: fetch it again")
    tensors = _dequantised(reader.tensors, path)
    if scaled := [tensor.name for tensor in reader.tensors if tensor.name.startswith("rope_")]:
        raise UserError(f"{path}: RoPE scaled by the tensor {scaled[0]} (Llama 3.1 and later) {_SAFETENSORS}")
    config = _config(fields, str(kind), tensors, path)
    if kind == "llama":
        for i in range(config.num_layers):
            for name, heads in (("q_proj", config.num_heads), ("k_proj", config.num_kv_heads)):
                for leaf in ("weight", "bias"):
                    full = f"layers.{i}.self_attn.{name}.{leaf}"
                    if full in tensors:
                        tensors[full] = _unpermuted(tensors[full], heads, config.head_size, f"{path}: tensor {full}")
    return config, tensors, read_tokenizer(fields, path)


def _dequantised(listed: Sequence[Any], path: Path) -> dict[str, np.ndarray]:
    """The tensors that a decoder has, float32, by Hugging Face's names."""
    import gguf

    tensors: dict[str, np.ndarray] = {}
    for tensor in listed:
        name = _hugging_face_name(tensor.name)
        if name is None:
            continue
        try:
            with np.errstate(all="ignore"):  # scales of a damaged block may leave float16's range
                values = gguf.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError, TypeError) as error:
            raise UserError(
                f"{path}: tensor {tensor.name} is quantised as {tensor.tensor_type.name}, which cannot be dequantised "
                f"({error}); another quantisation of the model will do"
            ) from None
        tensors[name] = np.array(values, np.float32)
    return tensors


def _hugging_face_name(name: str) -> str | None:
    owner, _, leaf = name.rpartition(".")
    if match := re.fullmatch(r"blk\.(\d+)\.(\w+)", owner):
        inner = _LAYER_NAMES.get(match[2])
        return f"layers.{match[1]}.{inner}.{leaf}" if inner else None
    return f"{_NAMES[owner]}.{leaf}" if owner in _NAMES else None


def _unpermuted(rows: np.ndarray, heads: int, head_size: int, where: str) -> np.ndarray:
    """Rows of a head as Hugging Face orders them: a rotated pair is (k, k + K/2) there and (2k, 2k + 1) in GGUF's Llama."""
    if not rows.ndim or len(rows) != heads * head_size:
        raise UserError(f"{where} has shape {rows.shape}; {heads} heads of width {head_size} are needed")
    pairs = rows.reshape(heads, head_size // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))


def _config(fields: dict[str, Any], kind: str, tensors: dict[str, np.ndarray], path: Path) -> DecoderConfig:
    """The architecture. Raises UserError for a field that is missing, of another type or out of its range."""
    settings = Settings(fields, path)
    scaling = settings.text(f"{kind}.rope.scaling.type", "none")
    if scaling not in ("none", ""):
        raise UserError(f"{path}: RoPE scaled as {scaling!r} {_SAFETENSORS}")
    table = tensors.get("embed_tokens.weight")
    if table is None or table.ndim != 2:
        raise UserError(f"{path}: the tensor token_embd.weight is missing or no matrix; fetch the file again")
    layers = len({int(name.split(".")[1]) for name in tensors if name.startswith("layers.")})
    hidden, heads = (settings.integer(f"{kind}.{key}", 1) for key in ("embedding_length", "attention.head_count"))
    config = DecoderConfig(
        model_type=kind,
        vocab_size=len(table),
        hidden_size=hidden,
        num_layers=settings.integer(f"{kind}.block_count", 1),
        num_heads=heads,
        num_kv_heads=settings.integer(f"{kind}.attention.head_count_kv", 1, default=heads),
        head_size=settings.integer(f"{kind}.attention.key_length", 1, default=hidden // heads),
        intermediate_size=settings.integer(f"{kind}.feed_forward_length", 1),
        max_positions=settings.integer(f"{kind}.context_length", 1),
        rms_norm_eps=settings.number(f"{kind}.attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope_theta=settings.number(f"{kind}.rope.freq_base", 1.0, 1e12, default=10000.0),
        rope_scaling=None,
        activation="silu",
        qkv_bias="layers.0.self_attn.q_proj.bias" in tensors,
        out_bias="layers.0.self_attn.o_proj.bias" in tensors,
        mlp_bias="layers.0.mlp.up_proj.bias" in tensors,
        qk_norm="layers.0.self_attn.q_norm.weight" in tensors,
        tied="lm_head.weight" not in tensors,
        pad_token_id=_pad_id(settings, len(table)),
    )
    if config.num_layers > layers:
        raise settings.fault(f"{kind}.block_count", f"is {config.num_layers}, but the tensors are of {layers} layers")
    return checked(config, path)


def _pad_id(settings: Settings, vocabulary: int) -> int:
    eos = settings.integer("tokenizer.ggml.eos_token_id", 0, vocabulary - 1, default=0)
    return settings.integer("tokenizer.ggml.padding_token_id", 0, vocabulary - 1, default=eos)
