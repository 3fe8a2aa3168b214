"""GGUF files of Llama-family decoders: architecture, weights dequantised to float32 without torch, and the tokenizer.

Needs the package gguf (the extra [gguf]).
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerFast

from jdistill.errors import UserError
from jdistill.models.decoder import DecoderConfig

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
ARCHITECTURES = ("llama", "qwen2", "qwen3")
_SAFETENSORS = "is not read from GGUF; load the model from its Hugging Face folder, which says how"
CONTROL = 3  # token_type of special tokens

# How the text is cut before BPE, by tokenizer.ggml.pre; None: as GPT-2's.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3, _QWEN2 = _WORDS.replace("NUMBERS", "{1,3}"), _WORDS.replace("NUMBERS", "")
_CUTS: dict[str, str | None] = {
    "gpt-2": None,
    "smollm": r"\p{N}",  # each digit by itself, then as GPT-2's
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
}


def read_gguf(path: Path) -> tuple[DecoderConfig, dict[str, np.ndarray], PreTrainedTokenizerFast]:
    """Architecture, tensors under Hugging Face's names (float32) and tokenizer of a .gguf file.

    Raises UserError where the package gguf is missing, the file is damaged, or its architecture, quantisation or
    tokenizer is none of those known.
    """
    try:
        import gguf
    except ImportError:
        raise UserError(f"{path}: reading GGUF needs the package gguf: pip install 'jdistill[gguf]'") from None
    try:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, OSError, IndexError, KeyError) as error:
        if "GGMLQuantizationType" in str(error):
            raise UserError(
                f"{path}: a tensor's quantisation is none that the package gguf {version('gguf')} knows ({error}); a newer one may, or "
                "another quantisation of the model will do"
            ) from None
        raise UserError(
            f"{path} cannot be read ({error}); it is truncated or not a GGUF file: fetch it again"
        ) from None
    kind = fields.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise UserError(f"{path}: its architecture is {kind!r}; jdistill reads {', '.join(ARCHITECTURES)}")
    tensors: dict[str, np.ndarray] = {}
    for tensor in reader.tensors:
        name = _hugging_face_name(tensor.name)
        if name is None:
            continue
        try:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise UserError(
                f"{path}: tensor {tensor.name} is quantised as {tensor.tensor_type.name}, which cannot be dequantised "
                f"({error}); another quantisation of the model will do"
            ) from None
        tensors[name] = np.array(values, np.float32)
    if scaled := [tensor.name for tensor in reader.tensors if tensor.name.startswith("rope_")]:
        raise UserError(f"{path}: RoPE scaled by the tensor {scaled[0]} (Llama 3.1 and later) {_SAFETENSORS}")
    config = _config(fields, str(kind), tensors, path)
    if kind == "llama":
        for i in range(config.num_layers):
            for name, heads in (("q_proj", config.num_heads), ("k_proj", config.num_kv_heads)):
                for leaf in ("weight", "bias"):
                    full = f"layers.{i}.self_attn.{name}.{leaf}"
                    if full in tensors:
                        tensors[full] = _unpermuted(tensors[full], heads)
    return config, tensors, _tokenizer(fields, path)


def _hugging_face_name(name: str) -> str | None:
    owner, _, leaf = name.rpartition(".")
    if found := re.fullmatch(r"blk\.(\d+)\.(\w+)", owner):
        inner = _LAYER_NAMES.get(found[2])
        return f"layers.{found[1]}.{inner}.{leaf}" if inner else None
    return f"{_NAMES[owner]}.{leaf}" if owner in _NAMES else None


def _unpermuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a head as Hugging Face orders them: a rotated pair is (k, k + K/2) there and (2k, 2k + 1) in GGUF's Llama."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows.shape))


def _config(fields: dict[str, Any], kind: str, tensors: dict[str, np.ndarray], path: Path) -> DecoderConfig:
    def of(key: str, default: Any = None) -> Any:
        value = fields.get(f"{kind}.{key}", default)
        if value is None:
            raise UserError(f"{path}: the field {kind}.{key} is missing")
        return value

    scaling = fields.get(f"{kind}.rope.scaling.type", "none")
    if scaling not in ("none", ""):
        raise UserError(f"{path}: RoPE scaled as {scaling!r} {_SAFETENSORS}")
    heads, hidden = of("attention.head_count"), of("embedding_length")
    vocabulary = tensors["embed_tokens.weight"].shape[0] if "embed_tokens.weight" in tensors else of("vocab_size")
    return DecoderConfig(
        model_type=kind,
        vocab_size=int(vocabulary),
        hidden_size=hidden,
        num_layers=of("block_count"),
        num_heads=heads,
        num_kv_heads=of("attention.head_count_kv", heads),
        head_size=of("attention.key_length", hidden // heads),
        intermediate_size=of("feed_forward_length"),
        max_positions=of("context_length"),
        rms_norm_eps=float(of("attention.layer_norm_rms_epsilon")),
        rope_theta=float(of("rope.freq_base", 10000.0)),
        rope_scaling=None,
        activation="silu",
        qkv_bias="layers.0.self_attn.q_proj.bias" in tensors,
        out_bias="layers.0.self_attn.o_proj.bias" in tensors,
        mlp_bias="layers.0.mlp.up_proj.bias" in tensors,
        qk_norm="layers.0.self_attn.q_norm.weight" in tensors,
        tied="lm_head.weight" not in tensors,
        pad_token_id=int(fields.get("tokenizer.ggml.padding_token_id", fields.get("tokenizer.ggml.eos_token_id", 0))),
    )


def _tokenizer(fields: dict[str, Any], path: Path) -> PreTrainedTokenizerFast:
    """Byte-level BPE from the file's vocabulary and merges."""
    kind, cut = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or cut not in _CUTS:
        raise UserError(
            f"{path}: its tokenizer is {kind!r} with pre-tokenizer {cut!r}; jdistill builds byte-level BPE ('gpt2') with "
            f"{', '.join(_CUTS)}. Load the model from its Hugging Face folder, which brings the tokenizer along"
        )
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ", 1)) for pair in fields["tokenizer.ggml.merges"]]
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in ("gpt-2", "smollm"))
    pattern = _CUTS[cut]
    bpe.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain]) if pattern else plain
    )
    bpe.decoder = ByteLevel()
    if cut == "qwen2":
        bpe.normalizer = normalizers.NFC()
    types = fields.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    special = [AddedToken(t, special=True) for t, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    bpe.add_special_tokens(special)
    named = {
        role: tokens[fields[f"tokenizer.ggml.{key}_token_id"]]
        for role, key in (
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "padding"),
        )
        if f"tokenizer.ggml.{key}_token_id" in fields
    }
    if fields.get("tokenizer.ggml.add_bos_token", False):
        bos = named["bos_token"]
        bpe.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, bpe.token_to_id(bos))]
        )
    template = fields.get("tokenizer.chat_template")
    return PreTrainedTokenizerFast(tokenizer_object=bpe, chat_template=template, **named)
