"""A decoder's sizes, and config.json and the names of tensors of Llama, Qwen2 and Qwen3, both ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.conversion import MOST_LAYERS, Names, names_by_table
from jdistill.models.rotary import WIDEST_HEAD


@dataclass(frozen=True)
class DecoderConfig:
    """The architecture of a decoder; hashable, so that it can be a static argument of jit."""

    model_type: str  # "llama", "qwen2" or "qwen3": the name on disk; what differs between them stands below
    vocab_size: int
    hidden_size: int  # D
    num_layers: int
    num_heads: int  # H
    num_kv_heads: int  # G
    head_size: int  # K; H x K need not be D (Qwen3)
    intermediate_size: int  # F
    max_positions: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: (
        tuple[float, float, float, int] | None
    )  # Llama 3's: factor, low, high, original positions; None: plain
    activation: str
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool  # RMSNorm on each head's queries and keys (Qwen3)
    tied: bool  # the output layer is the token table
    pad_token_id: int
    causal: bool = True
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0

    @property
    def embedding_size(self) -> int:
        return self.hidden_size

    @property
    def usable_positions(self) -> int:
        return self.max_positions


# As conversion.names_by_table reads them
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


def tensor_names(config: DecoderConfig) -> Names:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter but the output layer's."""
    biased = {"query": config.qkv_bias, "key": config.qkv_bias, "value": config.qkv_bias, "out": config.out_bias}
    biased |= {"gate": config.mlp_bias, "up": config.mlp_bias, "down": config.mlp_bias}
    absent = tuple(f"/{name}/bias" for name, is_there in biased.items() if not is_there)
    if not config.qk_norm:
        absent += ("query_norm/scale", "key_norm/scale")
    every = names_by_table(NAMES, config.num_layers)
    return {path: name for path, name in every.items() if not path.endswith(absent)}


def read_config(hf: Settings) -> DecoderConfig:
    """The architecture of a decoder's config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
    kind = hf.text("model_type", among=tuple(TYPES))
    layer_types = hf.raw("layer_types", ())
    if (
        hf.raw("use_sliding_window", False)
        or not isinstance(layer_types, list | tuple)
        or "sliding_attention" in layer_types
    ):
        raise UserError(f"{hf.path}: sliding-window attention is not supported (use_sliding_window, layer_types)")
    bias = kind == "qwen2" or hf.flag("attention_bias", False)
    hidden, heads = hf.integer("hidden_size", 1), hf.integer("num_attention_heads", 1)
    vocabulary = hf.integer("vocab_size", 1)
    theta, scaling = _rope(hf)
    return checked(
        DecoderConfig(
            model_type=kind,
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_layers=hf.integer("num_hidden_layers", 1, MOST_LAYERS),
            num_heads=heads,
            num_kv_heads=hf.integer("num_key_value_heads", 1, default=heads),
            head_size=hf.integer("head_dim", 1, default=hidden // heads),
            intermediate_size=hf.integer("intermediate_size", 1),
            max_positions=hf.integer("max_position_embeddings", 1, default=2048),
            rms_norm_eps=hf.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            activation=hf.text("hidden_act", "silu", among=tuple(ACTIVATIONS)),
            qkv_bias=bias,
            out_bias=bias and kind != "qwen2",
            mlp_bias=hf.flag("mlp_bias", False),
            qk_norm=kind == "qwen3",
            tied=hf.flag("tie_word_embeddings", False),
            pad_token_id=max(0, hf.integer("pad_token_id", -1, vocabulary - 1, default=0)),  # Llama's own file has -1
        ),
        hf.path,
    )


def _rope(hf: Settings) -> tuple[float, tuple[float, float, float, int] | None]:
    """(theta, Llama 3's scaling) of a config.json, by its new key or its two old ones."""
    rope = hf.part("rope_parameters")
    if not rope.values:
        rope = Settings({"rope_theta": hf.raw("rope_theta", 10000.0)} | hf.part("rope_scaling").values, hf.path)
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in ("default", "llama3"):
        raise UserError(f"{hf.path}: RoPE of type {kind!r} is not supported, only default and llama3")
    theta = rope.number("rope_theta", 1.0, 1e12, default=hf.number("rope_theta", 1.0, 1e12, default=10000.0))
    if kind == "default":
        return theta, None
    factor, low, high = (rope.number(f"{key}factor", 1e-6, 1e6) for key in ("", "low_freq_", "high_freq_"))
    if high <= low:
        raise rope.fault("high_freq_factor", f"is {high:g}, not above low_freq_factor, {low:g}")
    return theta, (factor, low, high, rope.integer("original_max_position_embeddings", 1))


def checked(config: DecoderConfig, where: Path) -> DecoderConfig:
    """The architecture. Raises UserError where its heads cannot be computed: too few for its key/value heads, or of an odd width."""
    if config.num_heads % config.num_kv_heads:
        raise UserError(f"{where}: {config.num_heads} heads cannot share {config.num_kv_heads} key/value heads")
    if not 2 <= config.head_size <= WIDEST_HEAD or config.head_size % 2:
        raise UserError(f"{where}: heads of width {config.head_size}; RoPE turns pairs, so the width is even")
    return config


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
