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
from jdistill.models.model import ModelConfig
from jdistill.models.pooling import DISTILFACE, OVER_TOKENS

# What modules.json calls the model whose states are pooled; the second is ours, of a decoder that sees both ways.
TRANSFORMERS = ("Transformer", "BidirectionalTransformer", "LSTM")


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


def read_pooler(folder: Path, modules: list[dict[str, str]], config: ModelConfig) -> tuple[str, list[tuple[str, Path]]]:
    """The pooler's name that the modules after the transformer stand for, and (kind, folder) of what follows it.

    Raises UserError for modules that are not Pooling, WeightedLayerPooling and Pooling, or our LayerPooling, then Dense and
    Normalize, and for settings that no pooler of ours has.
    """
    found = [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in modules]
    kinds = [kind for kind, _ in found]
    count = 2 if kinds[1:2] == ["WeightedLayerPooling"] else 1
    pooling, rest = kinds[1 : 1 + count], found[1 + count :]
    if kinds[-1:] == ["Interaction"]:  # scores pairs; a text's vector passes through it (jdistill.pair_scorer)
        kinds, rest = kinds[:-1], rest[:-1]
    known = (["Pooling"], ["WeightedLayerPooling", "Pooling"], ["LayerPooling"], ["FinalStates"], ["PmaPooling"])
    if (
        not kinds
        or kinds[0] not in TRANSFORMERS
        or pooling not in known
        or {kind for kind, _ in rest} - {"Dense", "Normalize"}
    ):
        raise UserError(
            f"{folder}/modules.json lists {kinds}; jdistill reads Transformer, Pooling (after WeightedLayerPooling, if "
            "there is one), then Dense and Normalize. Any other model can teach through st:SOURCE (torch extra) or vectors:FILE"
        )
    if "Normalize" in kinds[:-1]:
        raise UserError(
            f"{folder}/modules.json puts Normalize before {kinds[-1]}; jdistill reads it only as the last module"
        )
    layers: tuple[int, ...] = (config.num_layers,)
    over_layers, over_tokens = "mean", "mean"
    where = found[1][1]
    if pooling in (["FinalStates"], ["PmaPooling"]):
        return ("final" if pooling == ["FinalStates"] else "pma"), rest
    if pooling == ["LayerPooling"]:
        settings = read_json(where / "config.json", {})
        layers, over_layers = tuple(settings.get("layers", ())), settings.get("over_layers", "")
    else:
        over_tokens = _pooling_mode(found[count][1])
    if count == 2:
        layers = _weighted_layers(where)
    if over_layers == "mean" and layers == (config.num_layers,):
        return over_tokens, rest
    for name, pooler in DISTILFACE.items():
        if pooler.fewest_layers > config.num_layers:
            continue
        if (pooler.states(config.num_layers), pooler.over_layers, pooler.over_tokens) == (
            layers,
            over_layers,
            over_tokens,
        ):
            return name, rest
    raise UserError(
        f"{where} takes the hidden states {list(layers)} by {over_layers}, then {over_tokens} over tokens, as no pooler of "
        f"jdistill's does: {', '.join(DISTILFACE)}"
    )


def _weighted_layers(folder: Path) -> tuple[int, ...]:
    """The hidden states to which a WeightedLayerPooling gives weight. Raises UserError where weights differ."""
    start = int(read_json(folder / "config.json", {}).get("layer_start", 0))
    weights = np.asarray(read_tensors_of(folder)["layer_weights"], np.float32)
    if len({float(weight) for weight in weights if weight}) != 1:
        raise UserError(
            f"{folder}: its layers have different weights {weights.tolist()}; jdistill reads equal ones only"
        )
    return tuple(start + i for i, weight in enumerate(weights) if weight)


def _pooling_mode(folder: Path) -> str:
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
    tensors = read_tensors_of(folder)
    weights = {"kernel": np.ascontiguousarray(tensors["linear.weight"].T, np.float32)}
    if "linear.bias" in tensors:
        weights["bias"] = tensors["linear.bias"].astype(np.float32)
    return weights


def read_tensors_of(folder: Path) -> dict[str, np.ndarray]:
    """model.safetensors of one module's folder. Raises UserError where it is missing or damaged."""
    try:
        return load_file(folder / "model.safetensors")
    except (SafetensorError, ValueError, OSError) as error:
        raise UserError(f"{folder}/model.safetensors cannot be read ({error})") from None
