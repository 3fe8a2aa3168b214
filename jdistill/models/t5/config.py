"""The sizes of a T5's encoder, and config.json and the names of its tensors, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jdistill.core.json_files import Settings
from jdistill.models.bert import ACTIVATIONS
from jdistill.models.conversion import MOST_LAYERS, Names, names_by_table, plain_names
from jdistill.models.relative import BUCKETS, FARTHEST, FEWEST_BUCKETS

MOST_BUCKETS = 1 << 16  # far more than any model's: a graph has a row for each distance below the farthest
T5_BLOCK = re.compile(r"(?:^|\.)encoder\.block\.(\d{1,9})\.")
GATED_FORMS = "gated-"  # before the activation's name, where the feed-forward block has a gate
GATED_GELU = "gelu_new"  # what "gated-gelu" means, as T5 1.1 was trained


@dataclass(frozen=True)
class T5Config:
    """The architecture of an encoder; hashable, so that it can be a static argument of jit."""

    model_type: str
    vocab_size: int
    hidden_size: int  # D
    num_layers: int
    num_heads: int  # H
    head_size: int  # K; H x K need not be D
    intermediate_size: int  # F
    buckets: int  # rows of the table of distances
    farthest: int  # the distance from which on all are in one bucket
    rms_norm_eps: float
    activation: str
    gated: bool  # the feed-forward block has a gate (T5 1.1)
    pad_token_id: int
    hidden_dropout: float
    attention_dropout: float

    @property
    def embedding_size(self) -> int:
        return self.hidden_size

    @property
    def causal(self) -> bool:
        return False

    @property
    def usable_positions(self) -> int:
        """No table of positions limits the length; sentence_bert_config.json and the tokenizer do."""
        return 1_000_000


# As conversion.names_by_table reads them.
_ATTENTION, _FEED_FORWARD = "encoder.block.{i}.layer.0", "encoder.block.{i}.layer.1"
_TABLE = {
    "word/embedding": "shared",
    "relative/embedding": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "layer_{i}/attention_norm/scale": f"{_ATTENTION}.layer_norm",
    "layer_{i}/attention/query": f"{_ATTENTION}.SelfAttention.q",
    "layer_{i}/attention/key": f"{_ATTENTION}.SelfAttention.k",
    "layer_{i}/attention/value": f"{_ATTENTION}.SelfAttention.v",
    "layer_{i}/attention/out": f"{_ATTENTION}.SelfAttention.o",
    "layer_{i}/output_norm/scale": f"{_FEED_FORWARD}.layer_norm",
    "layer_{i}/down": f"{_FEED_FORWARD}.DenseReluDense.wo",
    "final_norm/scale": "encoder.final_layer_norm",
}
_PLAIN = {"layer_{i}/up": f"{_FEED_FORWARD}.DenseReluDense.wi"}
_WITH_GATE = {
    "layer_{i}/gate": f"{_FEED_FORWARD}.DenseReluDense.wi_0",
    "layer_{i}/up": f"{_FEED_FORWARD}.DenseReluDense.wi_1",
}


def tensor_names(config: T5Config) -> Names:
    """Flax path -> (Hugging Face name, whether to transpose), for every parameter. There are no biases."""
    every = names_by_table(_TABLE | (_WITH_GATE if config.gated else _PLAIN), config.num_layers)
    return {path: name for path, name in every.items() if not path.endswith("/bias")}


def encoder_tensors(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors by the names of tensor_names; some files call the token table by its other name."""
    clean = plain_names(tensors, "transformer.")
    other = clean.pop("encoder.embed_tokens.weight", None)
    return clean if other is None else {"shared.weight": other} | clean


def read_config(hf: Settings) -> T5Config:
    """The architecture of a config.json. Raises UserError for a key that is missing, of another type, or not computed here."""
    kind = hf.text("model_type", among=("t5",))
    if hf.flag("is_decoder", False):
        raise hf.fault("is_decoder", "is true; jdistill reads the encoder of a T5")
    vocabulary = hf.integer("vocab_size", 1)
    buckets = hf.integer("relative_attention_num_buckets", FEWEST_BUCKETS, MOST_BUCKETS, default=BUCKETS)
    activation, gated = _feed_forward(hf)
    dropout = hf.number("dropout_rate", 0.0, 1.0, default=0.1)
    return T5Config(
        model_type=kind,
        vocab_size=vocabulary,
        hidden_size=hf.integer("d_model", 1),
        num_layers=hf.integer("num_layers", 1, MOST_LAYERS),
        num_heads=hf.integer("num_heads", 1),
        head_size=hf.integer("d_kv", 1),
        intermediate_size=hf.integer("d_ff", 1),
        buckets=buckets,
        farthest=hf.integer("relative_attention_max_distance", buckets // 4 + 1, MOST_BUCKETS, default=FARTHEST),
        rms_norm_eps=hf.number("layer_norm_epsilon", 0.0, 1.0, default=1e-6),
        activation=activation,
        gated=gated,
        pad_token_id=hf.integer("pad_token_id", 0, vocabulary - 1, default=0),
        hidden_dropout=dropout,
        attention_dropout=dropout,
    )


def _feed_forward(hf: Settings) -> tuple[str, bool]:
    """(activation, whether there is a gate), which newer files say twice."""
    names = (*ACTIVATIONS, *(GATED_FORMS + name for name in ACTIVATIONS))
    projection = hf.text("feed_forward_proj", "relu", among=names)
    gated, name = projection.startswith(GATED_FORMS), projection.removeprefix(GATED_FORMS)
    activation = GATED_GELU if projection == GATED_FORMS + "gelu" else name
    if (other := hf.text("dense_act_fn", activation)) != activation:
        raise hf.fault("dense_act_fn", f"is {other[:60]!r}, but feed_forward_proj is {projection!r}")
    if hf.flag("is_gated_act", gated) != gated:
        raise hf.fault("is_gated_act", f"does not fit feed_forward_proj, {projection!r}")
    return activation, gated


def write_config(config: T5Config) -> dict[str, Any]:
    """The content of config.json for transformers; the inverse of read_config."""
    c = config
    name = "gelu" if c.gated and c.activation == GATED_GELU else c.activation
    return {
        "model_type": c.model_type,
        "architectures": ["T5EncoderModel"],
        "dtype": "float32",
        "vocab_size": c.vocab_size,
        "d_model": c.hidden_size,
        "d_kv": c.head_size,
        "d_ff": c.intermediate_size,
        "num_layers": c.num_layers,
        "num_heads": c.num_heads,
        "relative_attention_num_buckets": c.buckets,
        "relative_attention_max_distance": c.farthest,
        "layer_norm_epsilon": c.rms_norm_eps,
        "feed_forward_proj": f"{GATED_FORMS}{name}" if c.gated else name,
        "dense_act_fn": c.activation,
        "is_gated_act": c.gated,
        "dropout_rate": c.hidden_dropout,
        "pad_token_id": c.pad_token_id,
        "is_encoder_decoder": False,
        "use_cache": False,
    }
