"""A recurrent encoder in sentence-transformers' own files: WordEmbeddings, LSTM, and what follows as for any encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jdistill.core.errors import UserError
from jdistill.core.files import write_json
from jdistill.core.json_files import REQUIRED, read_settings
from jdistill.encoder.formats.modules import Module
from jdistill.encoder.formats.tensors import FILE, float_tensor, load_tensors
from jdistill.models.bilstm import DIRECTIONS, BilstmConfig

TOKENIZER = "sentence_transformers.models.tokenizer.WordTokenizer.TransformersTokenizerWrapper"
LSTM_PARTS = {"input": "weight_ih_l0", "recurrent": "weight_hh_l0"}
SUFFIX = dict(zip(DIRECTIONS, ("", "_reverse"), strict=True))


def is_bilstm(modules: list[Module]) -> bool:
    """Whether modules.json lists word embeddings and an LSTM first."""
    return [module.kind for module in modules[:2]] == ["WordEmbeddings", "LSTM"]


def read_config(modules: list[Module], vocab_size: int) -> BilstmConfig:
    """The architecture of modules whose embedding table has vocab_size rows. Raises UserError for an LSTM that is not one layer
    in both directions."""
    width, hidden = _sizes(modules)
    return BilstmConfig(vocab_size=vocab_size, embedding_size=width, lstm_size=hidden)


def _sizes(modules: list[Module]) -> tuple[int, int]:
    """(embedding_size, lstm_size)."""
    settings = read_settings(modules[1].folder / "lstm_config.json")
    if settings.integer("num_layers", 1, default=1) != 1 or not settings.flag("bidirectional", True):
        raise UserError(
            f"{settings.path}: jdistill reads an LSTM of one layer in both directions, and found {settings.values}"
        )
    old = settings.integer("word_embedding_dimension", 1, default=None)
    width = settings.integer("embedding_dimension", 1, default=REQUIRED if old is None else old)
    return width, settings.integer("hidden_dim", 1)


def read_params(modules: list[Module]) -> dict[str, Any]:
    """Flax parameters, float32. torch's two biases are added up. Raises UserError for a tensor that is missing or of another shape
    than lstm_config.json says."""
    width, hidden = _sizes(modules)
    paths = [module.folder / FILE for module in modules[:2]]
    words, lstm = map(load_tensors, paths)
    table = float_tensor(words, "emb_layer.weight", [None, width], paths[0])
    params: dict[str, Any] = {"word": {"embedding": table}}
    for name, suffix in SUFFIX.items():
        params[name] = {}
        for part, torch in LSTM_PARTS.items():
            shape = [4 * hidden, width if part == "input" else hidden]
            tensor = float_tensor(lstm, f"encoder.{torch}{suffix}", shape, paths[1])
            params[name][part] = np.ascontiguousarray(tensor.T)
        biases = [
            float_tensor(lstm, f"encoder.bias_{kind}_l0{suffix}", [4 * hidden], paths[1]) for kind in ("ih", "hh")
        ]
        params[name]["bias"] = biases[0] + biases[1]
    return params


def max_length(modules: list[Module]) -> int:
    """In tokens."""
    settings = read_settings(modules[0].folder / "wordembedding_config.json", optional=True)
    return settings.integer("max_seq_length", 1, default=1_000_000)


def write_files(folder: Path, config: BilstmConfig, limit: int) -> list[tuple[str, str]]:
    """The two modules' folders, weights and tokenizer excepted. Returns (type's last part, path) of each."""
    words, lstm = folder / "0_WordEmbeddings", folder / "1_LSTM"
    words.mkdir(parents=True, exist_ok=True)
    lstm.mkdir(exist_ok=True)
    write_json(
        words / "wordembedding_config.json",
        {"tokenizer_class": TOKENIZER, "update_embeddings": False, "max_seq_length": limit},
    )
    write_json(
        lstm / "lstm_config.json",
        {
            "embedding_dimension": config.embedding_size,
            "hidden_dim": config.lstm_size,
            "num_layers": 1,
            "dropout": 0,
            "bidirectional": True,
        },
    )
    return [("WordEmbeddings", words.name), ("LSTM", lstm.name)]


def write_weights(folder: Path, params: dict[str, Any]) -> None:
    """model.safetensors of the two modules; the whole bias goes into the first of torch's two."""
    table = np.asarray(params["word"]["embedding"], np.float32)
    save_file({"emb_layer.weight": table}, folder / "0_WordEmbeddings" / "model.safetensors", metadata={"format": "pt"})
    tensors: dict[str, np.ndarray] = {}
    for name, suffix in SUFFIX.items():
        for part, torch in LSTM_PARTS.items():
            tensors[f"encoder.{torch}{suffix}"] = np.ascontiguousarray(np.asarray(params[name][part], np.float32).T)
        bias = np.asarray(params[name]["bias"], np.float32)
        tensors[f"encoder.bias_ih_l0{suffix}"], tensors[f"encoder.bias_hh_l0{suffix}"] = bias, np.zeros_like(bias)
    save_file(tensors, folder / "1_LSTM" / "model.safetensors", metadata={"format": "pt"})
