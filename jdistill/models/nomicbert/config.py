"""A NomicBERT's sizes, and its config.json and the names of its tensors, both ways.

It was published with GPT-2's keys and code of its own; transformers 5.5 has a class for it, with BERT's keys, which later
files have beside them. Tensors are named as they were published, which transformers' class reads and writes too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jdistill.core.json_files import INT32_LARGEST, Settings, said
from jdistill.models.bert import ACTIVATIONS, BertConfig
from jdistill.models.conversion import MOST_LAYERS, Names, names_by_table
from jdistill.models.rotary import WIDEST_HEAD

GATED = {"swiglu": "silu", "geglu": "gelu"}  # the published name of a gated feed-forward block -> its activation
# Keys of what is not computed here, with the values that change nothing; one that is null or missing has such a value.
_UNCHANGED: dict[str, tuple[Any, ...]] = {
    "rotary_emb_fraction": (1.0,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "rotary_scaling_factor": (),
    "rope_scaling": (),
    "prenorm": (False,),
    "parallel_block": (False,),
    "use_rms_norm": (False,),
    "qkv_proj_bias": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "causal": (False,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "moe_every_n_layers": (0, -1),
}


@dataclass(frozen=True)
class NomicBertConfig(BertConfig):
    """The architecture of a NomicBERT: BERT's sizes, without a table of positions."""

    rope_theta: float


_LAYER = {
    "attention/qkv": "attn.Wqkv",
    "attention/out": "attn.out_proj",
    "attention_norm": "norm1",
    "up": "mlp.fc11",
    "gate": "mlp.fc12",
    "down": "mlp.fc2",
    "output_norm": "norm2",
}
# As conversion.names_by_table reads them.
_NAMES = {
    "embeddings/word/embedding": "embeddings.word_embeddings",
    "embeddings/type/embedding": "embeddings.token_type_embeddings",
    "embeddings/norm": "emb_ln",
    **{f"layer_{{i}}/{path}": f"encoder.layers.{{i}}.{name}" for path, name in _LAYER.items()},
}


def tensor_names(config: NomicBertConfig) -> Names:
    """Flax path -> (name on disk, whether to transpose), for every parameter; only norms have a bias."""
    every = names_by_table(_NAMES, config.num_layers)
    return {path: name for path, name in every.items() if not path.endswith("bias") or path.endswith("norm/bias")}


def read_config(hf: Settings) -> NomicBertConfig:
    """The sizes of a config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
    for key, plain in _UNCHANGED.items():
        value = hf.raw(key, None)
        if value is not None and not any(value == x and isinstance(value, bool) == isinstance(x, bool) for x in plain):
            raise hf.fault(key, f"is {said(value)}; computed is {' or '.join(map(str, (*plain, 'null')))} alone")

    def size(key: str, older: str, most: int = INT32_LARGEST) -> int:
        return either(hf, key, older, lambda name: hf.integer(name, 1, most, default=None))

    hidden, heads = size("hidden_size", "n_embd"), size("num_attention_heads", "n_head")
    if hidden % heads:
        raise hf.fault("num_attention_heads (n_head)", f"is {heads}, which does not divide the width {hidden}")
    width = hidden // heads
    if width % 2 or width > WIDEST_HEAD or hf.integer("head_dim", 1, default=width) != width:
        raise hf.fault(
            "num_attention_heads (n_head)", f"makes heads of width {width}; they are even, for RoPE, and head_dim wide"
        )
    vocabulary, publishers = hf.integer("vocab_size", 1), hf.integer("n_positions", 1, default=2048)
    return NomicBertConfig(
        model_type="nomic_bert",
        vocab_size=vocabulary,
        embedding_size=hidden,
        hidden_size=hidden,
        num_layers=size("num_hidden_layers", "n_layer", MOST_LAYERS),
        num_heads=heads,
        intermediate_size=size("intermediate_size", "n_inner"),
        # Published files have both: how long the texts of the training were, which transformers knows, and how long others may be.
        max_positions=hf.integer("max_position_embeddings", 1, default=publishers),
        type_vocab_size=hf.integer("type_vocab_size", 1, default=2),
        layer_norm_eps=either(
            hf, "layer_norm_eps", "layer_norm_epsilon", lambda name: hf.number(name, 0.0, 1.0, default=None), 1e-12
        ),
        activation=either(hf, "hidden_act", "activation_function", lambda name: _activation(hf, name), "silu"),
        pad_token_id=hf.integer("pad_token_id", 0, vocabulary - 1, default=0),
        hidden_dropout=hf.number(
            "hidden_dropout_prob", 0.0, 1.0, default=hf.number("resid_pdrop", 0.0, 1.0, default=0.0)
        ),
        attention_dropout=hf.number(
            "attention_probs_dropout_prob", 0.0, 1.0, default=hf.number("attn_pdrop", 0.0, 1.0, default=0.0)
        ),
        rope_theta=_theta(hf),
    )


def either(hf: Settings, key: str, older: str, read: Callable[[str], Any], default: Any = None) -> Any:
    """The value of a key that has two names.

    Args:
      key, older: its names.
      read: name -> value, None where the file has none.
      default: where it has neither; None: one is needed.

    Raises: UserError where both are missing or they differ, and as read does.
    """
    values = {name: value for name in (key, older) if (value := read(name)) is not None}
    if len(set(values.values())) > 1:
        raise hf.fault(older, f"is {values[older]}, but {key} is {values[key]}; they are names of one thing")
    if not values and default is None:
        raise hf.fault(key, f"is missing, and so is {older}")
    return next(iter(values.values()), default)


def _activation(hf: Settings, key: str) -> str | None:
    name = hf.text(key, None)
    if name is None or (key == "hidden_act" and name in ACTIVATIONS):
        return name
    if key == "hidden_act" or name not in GATED:
        supported = ACTIVATIONS if key == "hidden_act" else GATED
        raise hf.fault(key, f"is {name[:60]!r}; supported is {', '.join(supported)}")
    return GATED[name]


def _theta(hf: Settings) -> float:
    """RoPE's base."""
    rope = hf.part("rope_parameters")
    rope.text("rope_type", rope.text("type", "default", among=("default",)), among=("default",))
    settings = {"rope_theta": rope if "rope_theta" in rope.values else hf, "rotary_emb_base": hf}
    return either(
        hf, "rope_theta", "rotary_emb_base", lambda name: settings[name].number(name, 1.0, 1e12, default=None)
    )


def write_config(config: NomicBertConfig) -> dict[str, Any]:
    """The content of config.json, the inverse of read_config.

    For transformers' class and, by the other keys, for the published code and the servers that know those.
    """
    c = config
    published = {activation: name for name, activation in GATED.items()}
    hf = {
        "model_type": c.model_type,
        "architectures": ["NomicBertModel"],
        "dtype": "float32",
        "vocab_size": c.vocab_size,
        "type_vocab_size": c.type_vocab_size,
        "pad_token_id": c.pad_token_id,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_layers,
        "num_attention_heads": c.num_heads,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_positions,
        "hidden_act": c.activation,
        "layer_norm_eps": c.layer_norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_theta},
        "hidden_dropout_prob": c.hidden_dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "n_embd": c.hidden_size,
        "n_layer": c.num_layers,
        "n_head": c.num_heads,
        "n_inner": c.intermediate_size,
        "n_positions": c.max_positions,
        "max_trained_positions": c.max_positions,
        "layer_norm_epsilon": c.layer_norm_eps,
        "rotary_emb_base": c.rope_theta,
        "embd_pdrop": c.hidden_dropout,
        "resid_pdrop": c.hidden_dropout,
        "attn_pdrop": c.attention_dropout,
    }
    hf |= {key: plain[0] if plain else None for key, plain in _UNCHANGED.items() if key != "rope_scaling"}
    return hf | ({"activation_function": published[c.activation]} if c.activation in published else {})
