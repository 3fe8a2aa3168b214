"""A recurrent encoder in sentence-transformers' own files: WordEmbeddings, LSTM, and what follows as for any encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from jdistill import encoder_files
from jdistill.errors import UserError
from jdistill.files import write_json
from jdistill.models.bilstm import DIRECTIONS, BilstmConfig

TOKENIZER = "sentence_transformers.models.tokenizer.WordTokenizer.TransformersTokenizerWrapper"
LSTM_PARTS = {"input": "weight_ih_l0", "recurrent": "weight_hh_l0"}
SUFFIX = dict(zip(DIRECTIONS, ("", "_reverse"), strict=True))


def is_bilstm(modules: list[dict[str, str]]) -> bool:
    """Whether modules.json lists word embeddings and an LSTM first."""
    return [module["type"].rpartition(".")[2] for module in modules[:2]] == ["WordEmbeddings", "LSTM"]


def read_config(folder: Path, modules: list[dict[str, str]], vocab_size: int) -> BilstmConfig:
    """The architecture of a folder whose embedding table has vocab_size rows. Raises UserError for an LSTM that is not one layer
    in both directions."""
    path = folder / modules[1]["path"] / "lstm_config.json"
    settings = encoder_files.read_json(path, {})
    width = settings.get("embedding_dimension", settings.get("word_embedding_dimension"))
    if not width or settings.get("num_layers", 1) != 1 or not settings.get("bidirectional", True):
        raise UserError(f"{path}: jdistill reads an LSTM of one layer in both directions, and found {settings}")
    return BilstmConfig(vocab_size=vocab_size, embedding_size=width, lstm_size=settings["hidden_dim"])


def read_params(folder: Path, modules: list[dict[str, str]]) -> dict[str, Any]:
    """Flax parameters, float32. torch's two biases are added up."""
    words, lstm = (encoder_files.read_tensors_of(folder / module["path"]) for module in modules[:2])
    params: dict[str, Any] = {"word": {"embedding": words["emb_layer.weight"].astype(np.float32)}}
    for name, suffix in SUFFIX.items():
        params[name] = {
            part: np.ascontiguousarray(lstm[f"encoder.{torch}{suffix}"].T, np.float32)
            for part, torch in LSTM_PARTS.items()
        }
        first, second = (lstm[f"encoder.bias_{kind}_l0{suffix}"] for kind in ("ih", "hh"))
        params[name]["bias"] = (first + second).astype(np.float32)
    return params


def max_length(folder: Path, modules: list[dict[str, str]]) -> int:
    """In tokens."""
    settings = encoder_files.read_json(folder / modules[0]["path"] / "wordembedding_config.json", {})
    return int(settings.get("max_seq_length", 1_000_000))


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
