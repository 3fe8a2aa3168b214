"""A model folder to be broken, and what a refusal looks like."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_encoder, save_encoder

import jdistill
from jdistill.core.errors import UserError


def write_whole(folder: Path) -> Path:
    """A model with a projection, Normalize and a prompt."""
    rng = np.random.default_rng(0)
    dense = {"kernel": rng.normal(size=(32, 16)).astype(np.float32), "bias": np.zeros(16, np.float32)}
    model = replace(make_encoder(), dense=(dense,), dense_activations=("Tanh",), prompts={"query": "ask: "})
    return save_encoder(model, folder)


def refused(folder: Path, *words: str) -> str:
    """The one line of the refusal, which holds the words."""
    with pytest.raises(UserError) as caught:
        jdistill.load(str(folder))
    message = str(caught.value)
    assert "\n" not in message, message
    for word in words:
        assert word in message, message
    return message


def change(path: Path, **keys: Any) -> None:
    """Changes keys of a JSON object; ... takes one out."""
    content = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))
