"""Layers of a student of ModernBERT's kind before training: one that moves to the first place, and random ones."""

from __future__ import annotations

import numpy as np

from jdistill.core.types import Tree
from jdistill.models.modernbert.config import ModernBertConfig


def as_first(layer: Tree) -> Tree:
    """A layer for the first place, where attention has no norm of its own: what comes there was normed already.

    The norm's scale, and its bias where the kernel has one to take it, go into the kernel, which is to see what it saw.
    """
    if "attention_norm" not in layer:
        return layer
    norm, qkv = layer["attention_norm"], layer["attention"]["qkv"]
    taken = {"kernel": np.asarray(norm["scale"])[:, None] * qkv["kernel"]}
    if "bias" in qkv:
        taken["bias"] = qkv["bias"] + (norm["bias"] @ qkv["kernel"] if "bias" in norm else 0)
    attention = layer["attention"] | {"qkv": taken}
    return {name: part for name, part in layer.items() if name != "attention_norm"} | {"attention": attention}


def random_block(config: ModernBertConfig, rng: np.random.Generator) -> Tree:
    """One layer, normal(0.02) as BERT starts, with a norm before its attention."""
    D, F = config.hidden_size, config.intermediate_size

    def dense(rows: int, columns: int, use_bias: bool) -> Tree:
        kernel = {"kernel": (0.02 * rng.standard_normal((rows, columns))).astype(np.float32)}
        return kernel | ({"bias": np.zeros(columns, np.float32)} if use_bias else {})

    def norm() -> Tree:
        return {"scale": np.ones(D, np.float32)} | ({"bias": np.zeros(D, np.float32)} if config.norm_bias else {})

    qkv, out = dense(D, 3 * D, config.attention_bias), dense(D, D, config.attention_bias)
    return {
        "attention_norm": norm(),
        "attention": {"qkv": qkv, "out": out},
        "output_norm": norm(),
        "up": dense(D, 2 * F, config.mlp_bias),
        "down": dense(F, D, config.mlp_bias),
    }
