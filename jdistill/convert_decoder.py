"""Decoders between Hugging Face and Flax: config.json both ways, and the names of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jdistill.errors import UserError
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.decoder import DecoderConfig

# Flax path with {i} for the layer -> Hugging Face name without .weight or .bias
NAMES = {
    "word/embedding": "embed_tokens",
    "layer_{i}/attention_norm/scale": "layers.{i}.input_layernorm",
    "layer_{i}/attention/query": "layers.{i}.self_attn.q_proj",
    "layer_{i}/attention/key": "layers.{i}.self_attn.k_proj",
    "layer_{i}/attention/value": "layers.{i}.self_attn.v_proj",
    "layer_{i}/attention/query_norm/scale": "layers.{i}.self_attn.q_norm",
    "layer_{i}/attention/key_norm/scale": "layers.{i}.self_attn.k_norm",
    "layer_{i}/attention/out": "layers.{i}.self_attn.o_proj",
    "layer_{i}/output_norm/scale": "layers.{i}.post_attention_layernorm",
    "layer_{i}/gate": "layers.{i}.mlp.gate_proj",
    "layer_{i}/up": "layers.{i}.mlp.up_proj",
    "layer_{i}/down": "layers.{i}.mlp.down_proj",
    "final_norm/scale": "norm",
}
TYPES = {"llama": "LlamaModel", "qwen2": "Qwen2Model", "qwen3": "Qwen3Model"}


def names(config: DecoderConfig) -> dict[str, tuple[str, bool]]:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter but the output layer's."""
    biased = {"query": config.qkv_bias, "key": config.qkv_bias, "value": config.qkv_bias, "out": config.out_bias}
    biased |= {"gate": config.mlp_bias, "up": config.mlp_bias, "down": config.mlp_bias}
    found: dict[str, tuple[str, bool]] = {}
    for path, name in NAMES.items():
        if path.endswith(("query_norm/scale", "key_norm/scale")) and not config.qk_norm:
            continue
        for i in range(config.num_layers) if "{i}" in path else (0,):
            flax, torch = path.replace("{i}", str(i)), name.replace("{i}", str(i))
            owner = flax.rsplit("/", 1)[-1]
            if owner in biased:
                found[f"{flax}/kernel"] = (f"{torch}.weight", True)
                if biased[owner]:
                    found[f"{flax}/bias"] = (f"{torch}.bias", False)
            else:
                found[flax] = (f"{torch}.weight", False)
    return found


def shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Flax path -> shape for every parameter of names()."""
    c = config
    widths = {
        "query": (c.hidden_size, c.num_heads * c.head_size),
        "key": (c.hidden_size, c.num_kv_heads * c.head_size),
        "value": (c.hidden_size, c.num_kv_heads * c.head_size),
        "out": (c.num_heads * c.head_size, c.hidden_size),
        "gate": (c.hidden_size, c.intermediate_size),
        "up": (c.hidden_size, c.intermediate_size),
        "down": (c.intermediate_size, c.hidden_size),
    }
    found: dict[str, tuple[int, ...]] = {}
    for path in names(config):
        *_, owner, leaf = path.split("/")
        if leaf == "embedding":
            found[path] = (c.vocab_size, c.hidden_size)
        elif leaf == "scale":
            found[path] = (c.head_size,) if owner in ("query_norm", "key_norm") else (c.hidden_size,)
        else:
            found[path] = widths[owner] if leaf == "kernel" else widths[owner][1:]
    return found


def read_config(hf: dict[str, Any], path: Path) -> DecoderConfig:
    """The architecture of a decoder's config.json. Raises UserError for what the module does not compute."""
    kind = hf["model_type"]
    rope = hf.get("rope_parameters") or {"rope_theta": hf.get("rope_theta", 10000.0)} | (hf.get("rope_scaling") or {})
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type not in ("default", "llama3"):
        raise UserError(f"{path}: RoPE of type {rope_type!r} is not supported, only default and llama3")
    if hf.get("use_sliding_window") or "sliding_attention" in (hf.get("layer_types") or ()):
        raise UserError(f"{path}: sliding-window attention is not supported")
    activation = hf.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        raise UserError(f"{path}: activation {activation!r} is not supported, only {', '.join(ACTIVATIONS)}")
    bias = kind == "qwen2" or bool(hf.get("attention_bias", False))
    scaling = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return DecoderConfig(
        model_type=kind,
        vocab_size=hf["vocab_size"],
        hidden_size=hf["hidden_size"],
        num_layers=hf["num_hidden_layers"],
        num_heads=hf["num_attention_heads"],
        num_kv_heads=hf.get("num_key_value_heads") or hf["num_attention_heads"],
        head_size=hf.get("head_dim") or hf["hidden_size"] // hf["num_attention_heads"],
        intermediate_size=hf["intermediate_size"],
        max_positions=hf.get("max_position_embeddings", 2048),
        rms_norm_eps=hf.get("rms_norm_eps", 1e-6),
        rope_theta=float(rope.get("rope_theta", hf.get("rope_theta", 10000.0))),
        rope_scaling=(*map(float, (rope[key] for key in scaling[:3])), int(rope[scaling[3]]))
        if rope_type == "llama3"
        else None,  # type: ignore[arg-type]
        activation=activation,
        qkv_bias=bias,
        out_bias=bias and kind != "qwen2",
        mlp_bias=bool(hf.get("mlp_bias", False)),
        qk_norm=kind == "qwen3",
        tied=bool(hf.get("tie_word_embeddings", False)),
        pad_token_id=hf["pad_token_id"] if hf.get("pad_token_id") is not None else 0,
    )


def write_config(config: DecoderConfig) -> dict[str, Any]:
    """The content of config.json for transformers; the inverse of read_config."""
    c = config
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": c.rope_theta}
    if c.rope_scaling:
        factor, low, high, original = c.rope_scaling
        rope |= {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high}
        rope["original_max_position_embeddings"] = original
    hf = {
        "model_type": c.model_type,
        "architectures": [TYPES[c.model_type]],
        "dtype": "float32",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_size,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_positions,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_parameters": rope,
        "rope_theta": c.rope_theta,
        "hidden_act": c.activation,
        "tie_word_embeddings": c.tied,
        "pad_token_id": c.pad_token_id,
        "attention_dropout": 0.0,
    }
    if c.model_type != "qwen2":
        hf["attention_bias"] = c.qkv_bias
    if c.model_type == "llama":
        hf["mlp_bias"] = c.mlp_bias
    return hf
