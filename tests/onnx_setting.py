"""A random tiny model of transformers, and how near an int8 graph must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jdistill.export import targets

SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}


def tiny(folder: Path, kind: str, **changes: Any) -> Any:
    """A random tiny model of transformers, saved in `folder`. Weights are large, so that a wrong graph shows."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(7)
    pad = 1 if kind in ("roberta", "xlm-roberta") else 0
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, "pad_token_id": pad, **changes})
    if kind == "electra" and "embedding_size" not in changes:
        config.embedding_size = config.hidden_size
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def ask_cosine(monkeypatch: pytest.MonkeyPatch, least: float) -> None:
    """The int8 forms of a graph must have this mean cosine to Flax from now on."""
    for name in ("onnx-int8", "onnx-int8-calibrated"):
        monkeypatch.setitem(targets.TARGETS, name, replace(targets.TARGETS[name], least_cosine=least))
