"""The parts of a Hugging Face or sentence-transformers folder, each read and checked: JSON, tokenizer, Pooling, Dense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from jdistill.errors import UserError
from jdistill.models.heads import ACTIVATIONS
from jdistill.models.pooling import OVER_TOKENS
from jdistill.models.transformer import ModelConfig


def read_json(path: Path, default: Any) -> Any:
    """A JSON file's content, or `default` where there is none. Raises UserError where it is not valid."""
    if not path.is_file():
        return default
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None


def load_tokenizer(folder: Path, config: ModelConfig) -> Any:
    """The fast tokenizer of a folder. Raises UserError where it is missing, slow, or has more ids than the embedding."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: its tokenizer cannot be read ({str(error).splitlines()[0]})") from None
    if not tokenizer.is_fast:
        raise UserError(f"{folder}: only fast tokenizers (tokenizer.json) are supported")
    return checked_tokenizer(tokenizer, config, folder)


def checked_tokenizer(tokenizer: Any, config: ModelConfig, where: Path) -> Any:
    """The tokenizer with a padding token. Raises UserError where it has more ids than the embedding has rows."""
    if tokenizer.pad_token is None:  # most decoders have none; what stands in padding is never looked at
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    highest = max(tokenizer.get_vocab().values())
    if highest >= config.vocab_size:
        raise UserError(
            f"{where}: the tokenizer has ids up to {highest}, but the embedding only {config.vocab_size} rows; "
            "they do not belong together"
        )
    return tokenizer


def read_pooling(folder: Path) -> str:
    """The name of a Pooling module's mode. Raises UserError for one that is not in OVER_TOKENS, or several at once."""
    config = read_json(folder / "config.json", {})
    if "pooling_mode" in config:
        modes = [config["pooling_mode"]] if isinstance(config["pooling_mode"], str) else list(config["pooling_mode"])
    else:
        modes = [
            key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
            for key, on in config.items()
            if key.startswith("pooling_mode_") and on
        ]
    modes = modes or ["mean"]
    if len(modes) != 1 or modes[0] not in OVER_TOKENS:
        raise UserError(f"{folder}/config.json asks for pooling {modes}; supported is one of {sorted(OVER_TOKENS)}")
    return modes[0]


def read_activation(folder: Path) -> str:
    """The name of a Dense module's activation, as in ACTIVATIONS; raises UserError for another."""
    config = read_json(folder / "config.json", {})
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh").rsplit(".", 1)[-1]
    if activation not in ACTIVATIONS:
        raise UserError(f"{folder}/config.json: activation {activation} is not supported, only {sorted(ACTIVATIONS)}")
    return activation


def read_dense(folder: Path) -> dict[str, np.ndarray]:
    """A Dense module's weights, float32: kernel [in, out] and, where it has one, bias [out]."""
    try:
        tensors = load_file(folder / "model.safetensors")
    except (SafetensorError, ValueError, OSError) as error:
        raise UserError(f"{folder}/model.safetensors cannot be read ({error})") from None
    weights = {"kernel": np.ascontiguousarray(tensors["linear.weight"].T, np.float32)}
    if "linear.bias" in tensors:
        weights["bias"] = tensors["linear.bias"].astype(np.float32)
    return weights
