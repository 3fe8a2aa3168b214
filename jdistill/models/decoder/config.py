"""A decoder's sizes, and config.json and the names of tensors of each model type, both ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings, said
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.conversion import MOST_LAYERS, Names, names_by_table
from jdistill.models.decoder.layer_types import GEMMA, Scaling, read_rope, read_sliding, rope_keys, sliding_keys
from jdistill.models.rotary import WIDEST_HEAD


@dataclass(frozen=True)
class DecoderConfig:
    """The architecture of a decoder; hashable, so that it can be a static argument of jit."""

    model_type: str  # a key of TYPES: the name on disk; what differs between them stands below
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
    rope_scaling: Scaling | None  # Llama 3's: factor, low, high, original positions; None: plain
    activation: str
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool  # RMSNorm on each head's queries and keys (Qwen3, Gemma 3)
    tied: bool  # the output layer is the token table
    pad_token_id: int
    causal: bool = True
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    sliding: tuple[bool, ...] = ()  # of each layer whether its tokens see a window alone; (): none's do
    sliding_window: int = 0  # positions to each side that they see, the token itself not counted
    local_rope_theta: float = 0.0  # of sliding layers; 0: as the others'
    query_scalar: int = 0  # scores are divided by its root; 0: by that of head_size

    @property
    def gemma(self) -> bool:
        """Whether embeddings are scaled, norms are by 1 + weight, and what a layer adds is normed."""
        return self.model_type == GEMMA

    def window(self, layer: int) -> int | None:
        """How many positions to each side a token sees in a layer, counted from 0; None: all."""
        return self.sliding_window if self.sliding and self.sliding[layer] else None

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
# Gemma's norm behind attention has the name of Llama's before the feed-forward block.
GEMMA_NAMES = NAMES | {
    "layer_{i}/attended_norm/scale": "layers.{i}.post_attention_layernorm",
    "layer_{i}/output_norm/scale": "layers.{i}.pre_feedforward_layernorm",
    "layer_{i}/down_norm/scale": "layers.{i}.post_feedforward_layernorm",
}
TYPES = {
    "llama": "LlamaModel",
    "mistral": "MistralModel",
    "qwen2": "Qwen2Model",
    "qwen3": "Qwen3Model",
    GEMMA: "Gemma3TextModel",
}
# Where a file lacks the keys, as transformers has it.
HEADS = {GEMMA: 256, "qwen3": 128}
KV_HEADS = {GEMMA: 4, "qwen2": 32, "qwen3": 32, "mistral": 8}
POSITIONS = {GEMMA: 131072, "llama": 2048, "mistral": 131072, "qwen2": 32768, "qwen3": 32768}
GEMMA_QUERY_SCALAR = 256


def tensor_names(config: DecoderConfig) -> Names:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter but the output layer's."""
    biased = {"query": config.qkv_bias, "key": config.qkv_bias, "value": config.qkv_bias, "out": config.out_bias}
    biased |= {"gate": config.mlp_bias, "up": config.mlp_bias, "down": config.mlp_bias}
    absent = tuple(f"/{name}/bias" for name, is_there in biased.items() if not is_there)
    if not config.qk_norm:
        absent += ("query_norm/scale", "key_norm/scale")
    every = names_by_table(GEMMA_NAMES if config.gemma else NAMES, config.num_layers)
    return {path: name for path, name in every.items() if not path.endswith(absent)}


def read_config(hf: Settings) -> DecoderConfig:
    """The architecture of a decoder's config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
    kind = hf.text("model_type", among=tuple(TYPES))
    gemma = kind == GEMMA
    bias = kind == "qwen2" or (kind != "mistral" and hf.flag("attention_bias", False))
    hidden, heads = hf.integer("hidden_size", 1), hf.integer("num_attention_heads", 1)
    vocabulary, layers = hf.integer("vocab_size", 1), hf.integer("num_hidden_layers", 1, MOST_LAYERS)
    theta, scaling, local_theta = read_rope(hf, kind)
    causal = _causal(hf, gemma)
    sliding, window = read_sliding(hf, kind, layers, causal or not gemma)
    if any(sliding) and not hf.flag(
        "is_causal", True
    ):  # of a Gemma too, whose window use_bidirectional_attention alone makes narrower
        raise hf.fault("is_causal", "is false, and some layers slide; their window both ways is not computed here")
    return checked(
        DecoderConfig(
            model_type=kind,
            vocab_size=vocabulary,
            hidden_size=hidden,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=hf.integer(
                "num_key_value_heads",
                1,
                default=heads if "num_key_value_heads" in hf.values else KV_HEADS.get(kind, heads),
            ),
            head_size=hf.integer("head_dim", 1, default=HEADS.get(kind, hidden // heads)),
            intermediate_size=hf.integer("intermediate_size", 1),
            max_positions=hf.integer("max_position_embeddings", 1, default=POSITIONS[kind]),
            rms_norm_eps=hf.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            activation=_activation(hf, gemma),
            qkv_bias=bias,
            out_bias=bias and kind != "qwen2",
            mlp_bias=kind == "llama" and hf.flag("mlp_bias", False),
            qk_norm=kind in ("qwen3", GEMMA),
            tied=hf.flag("tie_word_embeddings", gemma),
            pad_token_id=max(0, hf.integer("pad_token_id", -1, vocabulary - 1, default=0)),  # Llama's own file has -1
            causal=causal,
            sliding=sliding,
            sliding_window=window,
            local_rope_theta=local_theta,
            query_scalar=hf.integer("query_pre_attn_scalar", 1, default=GEMMA_QUERY_SCALAR) if gemma else 0,
        ),
        hf.path,
    )


def _causal(hf: Settings, gemma: bool) -> bool:
    """Whether tokens see those before them only; Gemma has a key of its own for it."""
    causal, both_ways = hf.flag("is_causal", True), hf.flag("use_bidirectional_attention", False)
    if not gemma:
        if both_ways and causal:  # transformers reads it of Gemma alone
            raise hf.fault(
                "use_bidirectional_attention",
                "is true, which is for code of its publisher's own and not read here; the model can teach through st:SOURCE (torch extra)",
            )
        return causal
    if not causal and not both_ways:
        raise hf.fault(
            "is_causal", "is false, but not use_bidirectional_attention true, by which a Gemma reads both ways"
        )
    return not both_ways


def _activation(hf: Settings, gemma: bool) -> str:
    """The feed-forward block's. Raises UserError where a Gemma caps scores or logits, as Gemma 2 did."""
    if not gemma:
        return hf.text("hidden_act", "silu", among=tuple(ACTIVATIONS))
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if (cap := hf.raw(key, None)) is not None:
            raise hf.fault(key, f"is {said(cap)}; capped scores and logits are not computed here")
    return hf.text("hidden_activation", "gelu_pytorch_tanh", among=tuple(ACTIVATIONS))


def checked(config: DecoderConfig, where: Path) -> DecoderConfig:
    """The architecture. Raises UserError where its heads cannot be computed: too few for its key/value heads, or of an odd width."""
    if config.num_heads % config.num_kv_heads:
        raise UserError(f"{where}: {config.num_heads} heads cannot share {config.num_kv_heads} key/value heads")
    if not 2 <= config.head_size <= WIDEST_HEAD or config.head_size % 2:
        raise UserError(
            f"{where}: heads of width {config.head_size}; RoPE turns pairs, so the width is even, and {WIDEST_HEAD} at most"
        )
    return config


def write_config(config: DecoderConfig) -> dict[str, Any]:
    """The content of config.json for transformers; the inverse of read_config."""
    c = config
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
        "hidden_activation" if c.gemma else "hidden_act": c.activation,
        "tie_word_embeddings": c.tied,
        "pad_token_id": c.pad_token_id,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,  # text-embeddings-inference loads no Llama or Mistral without it
    }
    if c.model_type not in ("mistral", "qwen2"):
        hf["attention_bias"] = c.qkv_bias
    if c.model_type == "llama":
        hf["mlp_bias"] = c.mlp_bias
    if c.gemma:
        hf |= {"query_pre_attn_scalar": c.query_scalar, "use_bidirectional_attention": not c.causal}
    elif not c.causal and not any(c.sliding):
        hf["is_causal"] = False  # vLLM and AutoModel read both ways by it; beside windows read_config refuses it
        if c.model_type in ("llama", "mistral"):
            hf["use_bidirectional_attention"] = True  # text-embeddings-inference does by that
    return hf | rope_keys(c) | sliding_keys(c)
