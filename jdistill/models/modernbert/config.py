"""A ModernBERT's sizes, and its config.json and the names of its tensors, both ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jdistill.core.json_files import Settings, said
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.conversion import MOST_LAYERS, Names, names_by_table
from jdistill.models.rotary import WIDEST_HEAD

GLOBAL, LOCAL = "full_attention", "sliding_attention"  # what a layer's tokens see, as config.json has it
THETAS = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
EVERY = 3  # of the layers one is global, where a file does not tell


@dataclass(frozen=True)
class ModernBertConfig:
    """The sizes of a ModernBERT; hashable, so that it can be a static argument of jit."""

    vocab_size: int
    hidden_size: int  # D
    num_layers: int
    num_heads: int
    intermediate_size: int  # F
    max_positions: int
    layer_types: tuple[str, ...]  # GLOBAL or LOCAL, of each layer
    local_attention: int  # tokens of the window that a local layer's token stands in the middle of
    global_theta: float
    local_theta: float
    norm_eps: float
    activation: str
    attention_bias: bool
    mlp_bias: bool
    norm_bias: bool
    pad_token_id: int
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    mlp_dropout: float = 0.0
    model_type: str = "modernbert"

    @property
    def embedding_size(self) -> int:
        return self.hidden_size

    @property
    def usable_positions(self) -> int:
        return self.max_positions

    @property
    def causal(self) -> bool:
        return False

    @property
    def reach(self) -> int:
        """How many tokens away the farthest is that a local layer's token sees."""
        return self.local_attention // 2


# As conversion.names_by_table reads them.
_NAMES = {
    "embeddings/word/embedding": "embeddings.tok_embeddings",
    "embeddings/norm": "embeddings.norm",
    "layer_{i}/attention_norm": "layers.{i}.attn_norm",
    "layer_{i}/attention/qkv": "layers.{i}.attn.Wqkv",
    "layer_{i}/attention/out": "layers.{i}.attn.Wo",
    "layer_{i}/output_norm": "layers.{i}.mlp_norm",
    "layer_{i}/up": "layers.{i}.mlp.Wi",
    "layer_{i}/down": "layers.{i}.mlp.Wo",
    "final_norm": "final_norm",
}


def tensor_names(config: ModernBertConfig) -> Names:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter; layer 0 has no attention norm."""
    has_bias = {"norm": config.norm_bias, "qkv": config.attention_bias, "out": config.attention_bias}
    has_bias |= {"up": config.mlp_bias, "down": config.mlp_bias}
    absent = tuple(f"{name}/bias" for name, is_there in has_bias.items() if not is_there)
    every = names_by_table(_NAMES, config.num_layers)
    return {
        path: name
        for path, name in every.items()
        if not path.endswith(absent) and not path.startswith("layer_0/attention_norm/")
    }


def read_config(hf: Settings) -> ModernBertConfig:
    """The sizes of a config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
    hidden, heads = hf.integer("hidden_size", 1), hf.integer("num_attention_heads", 1)
    if hidden % heads:
        raise hf.fault("num_attention_heads", f"is {heads}, which does not divide the width {hidden}")
    if (width := hidden // heads) % 2 or width > WIDEST_HEAD:
        raise hf.fault("num_attention_heads", f"makes heads of width {width}; RoPE turns pairs, so the width is even")
    vocabulary, layers = hf.integer("vocab_size", 1), hf.integer("num_hidden_layers", 1, MOST_LAYERS)
    thetas = _thetas(hf)
    return ModernBertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=hf.integer("intermediate_size", 1),
        max_positions=hf.integer("max_position_embeddings", 1, default=8192),
        layer_types=_layer_types(hf, layers),
        local_attention=hf.integer("local_attention", 2, default=128),
        global_theta=thetas[GLOBAL],
        local_theta=thetas[LOCAL],
        norm_eps=hf.number("norm_eps", 0.0, 1.0, default=1e-5),
        activation=hf.text("hidden_activation", "gelu", among=tuple(ACTIVATIONS)),
        attention_bias=hf.flag("attention_bias", False),
        mlp_bias=hf.flag("mlp_bias", False),
        norm_bias=hf.flag("norm_bias", False),
        pad_token_id=hf.integer("pad_token_id", 0, vocabulary - 1, default=-1),
        embedding_dropout=hf.number("embedding_dropout", 0.0, 1.0, default=0.0),
        attention_dropout=hf.number("attention_dropout", 0.0, 1.0, default=0.0),
        mlp_dropout=hf.number("mlp_dropout", 0.0, 1.0, default=0.0),
    )


def _layer_types(hf: Settings, layers: int) -> tuple[str, ...]:
    """What each layer's tokens see, by the new key or by the old one."""
    listed = hf.raw("layer_types", None)
    if listed is None:
        return by_turns(layers, hf.integer("global_attn_every_n_layers", 1, default=EVERY))
    if not isinstance(listed, list) or any(kind not in (GLOBAL, LOCAL) for kind in listed):
        raise hf.fault("layer_types", f"is {said(listed)}; a list of {GLOBAL} and {LOCAL} is needed")
    if len(listed) != layers:
        raise hf.fault("layer_types", f"is of {len(listed)} layers, and num_hidden_layers is {layers}")
    return tuple(listed)


def by_turns(layers: int, every: int) -> tuple[str, ...]:
    """The first layer and every so many after it global, all others local."""
    return tuple(LOCAL if i % every else GLOBAL for i in range(layers))


def turns_of(layer_types: tuple[str, ...]) -> int:
    """Every how many layers one is global, the first among them; 0 where they do not come by turns."""
    count = len(layer_types)
    return next((every for every in range(1, count + 1) if by_turns(count, every) == layer_types), 0)


def _thetas(hf: Settings) -> dict[str, float]:
    """RoPE's base of either kind of layer, by the new key or by the old ones."""
    if hf.raw("rope_scaling", None) is not None:
        raise hf.fault("rope_scaling", "is not supported, only plain RoPE")
    both = hf.part("rope_parameters")
    if strange := sorted(both.values.keys() - {GLOBAL, LOCAL}):
        raise hf.fault("rope_parameters", f"has {strange[0][:60]!r}; it is an object of {GLOBAL} and {LOCAL}")
    thetas = {}
    for kind, (old_key, default) in THETAS.items():
        rope = both.part(kind)
        rope.text("rope_type", rope.text("type", "default", among=("default",)), among=("default",))
        old = hf.number(old_key, 1.0, 1e12, default=default)
        thetas[kind] = rope.number("rope_theta", 1.0, 1e12, default=old)
    return thetas


def write_config(config: ModernBertConfig) -> dict[str, Any]:
    """The content of config.json for transformers; the inverse of read_config.

    Beside the keys of transformers 5 stand those before it, which other servers read. Where the kinds of layers do
    not come by turns, no older key could tell, and a reader that requires it refuses the file.
    """
    c = config
    thetas = {GLOBAL: c.global_theta, LOCAL: c.local_theta}
    hf = {
        "model_type": c.model_type,
        "architectures": ["ModernBertModel"],
        "dtype": "float32",
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_positions,
        "layer_types": list(c.layer_types),
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()},
        "global_rope_theta": c.global_theta,
        "local_rope_theta": c.local_theta,
        "local_attention": c.local_attention,
        "norm_eps": c.norm_eps,
        "layer_norm_eps": c.norm_eps,
        "hidden_activation": c.activation,
        "attention_bias": c.attention_bias,
        "mlp_bias": c.mlp_bias,
        "norm_bias": c.norm_bias,
        "pad_token_id": c.pad_token_id,
        "embedding_dropout": c.embedding_dropout,
        "attention_dropout": c.attention_dropout,
        "mlp_dropout": c.mlp_dropout,
        # Text-embeddings-inference loads no model without these, and without special_ids of the architecture.
        "initializer_range": 0.02,
        "initializer_cutoff_factor": 2.0,
        "classifier_activation": "gelu",
    }
    every = turns_of(c.layer_types)
    return hf | ({"global_attn_every_n_layers": every} if every else {})
