"""The one way to load an Encoder: Hugging Face, sentence-transformers' and .gguf files, with the modules and prompts they bring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jdistill import bilstm_files, convert, encoder_files
from jdistill.data.sources import resolve
from jdistill.encoder import Encoder
from jdistill.gguf_file import read_gguf
from jdistill.models.decoder import DecoderConfig
from jdistill.pma_tensors import from_torch

# The files that are wanted of a hub repository, whose other formats of the same weights can be as large again.
WANTED = [
    "*.json", "*.jinja", "*.safetensors", "*.txt", "*.model", "*Pooling/*", "*_Dense/*", "*_WordEmbeddings/*", "*_LSTM/*", "*_Interaction/*",
]  # fmt: skip


def folder_of(source: str, key: str) -> Path:
    """Where a model's files lie, downloaded where it is a hub id; a .gguf file itself. Raises as data.sources.resolve."""
    return resolve(source, key, allow_patterns=WANTED)


def load(source: str, *, key: str = "model", dtype: str = "float32", weights: dict[str, Any] | None = None) -> Encoder:
    """Loads an encoder from a path, a hub id or `pkg:import_name/sub/folder`.

    Understands Hugging Face folders (mean pooling is assumed, as sentence-transformers does), sentence-transformers
    folders with Transformer, pooling, Dense and Normalize modules, prompts and maximum length, and .gguf files of
    decoders. `key` is what error messages call this source. weights: taken instead of the folder's own safetensors.
    Raises UserError for whatever is missing, damaged or does not fit together.
    """
    folder = folder_of(source, key)
    if folder.suffix == ".gguf":
        return _load_gguf(folder, source, dtype)
    modules = encoder_files.read_json(
        folder / "modules.json", [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": ""}]
    )
    if bilstm_files.is_bilstm(modules):
        return _load_bilstm(folder, modules, source, dtype, weights)
    root = folder / modules[0]["path"]
    config = convert.read_config(root)
    if modules[0]["type"].endswith("BidirectionalTransformer") and isinstance(config, DecoderConfig):
        config = replace(config, causal=False)
    pooling, after = encoder_files.read_pooler(folder, modules, config)
    dense_folders = [path for kind, path in after if kind == "Dense"]
    tokenizer = encoder_files.load_tokenizer(root, config)
    bert = encoder_files.read_json(root / "sentence_bert_config.json", {})
    limits = [config.usable_positions, bert.get("max_seq_length"), tokenizer.model_max_length]
    if weights is None:
        weights = {
            "model": convert.from_hf(config, convert.read_tensors(root), str(root)),
            "dense": {str(i): encoder_files.read_dense(path) for i, path in enumerate(dense_folders)},
        }
        if pooling == "pma":
            weights["pooler"] = from_torch(encoder_files.read_tensors_of(folder / modules[1]["path"]))
    limit = int(min(limit for limit in limits if limit))
    model = Encoder(config, {}, tokenizer, pooling, max_length=limit, dtype=dtype, source=source)
    return _with_modules(model, folder, after).with_weights(weights)


def _with_modules(model: Encoder, folder: Path, after: list[tuple[str, Path]]) -> Encoder:
    """The encoder with the projections' activations, normalisation and prompts of its folder. after: modules behind the pooler."""
    st = encoder_files.read_json(folder / "config_sentence_transformers.json", {})
    prompts = {name: text for name, text in (st.get("prompts") or {}).items() if text}
    default = st.get("default_prompt_name")
    return replace(
        model,
        normalize=after[-1:] != [] and after[-1][0] == "Normalize",
        dense_activations=tuple(encoder_files.read_activation(path) for kind, path in after if kind == "Dense"),
        prompts=prompts,
        default_prompt=default if default in prompts else None,
    )


def _load_bilstm(
    folder: Path, modules: list[dict[str, str]], source: str, dtype: str, weights: dict[str, Any] | None
) -> Encoder:
    if weights is None:
        weights = {"model": bilstm_files.read_params(folder, modules)}
    config = bilstm_files.read_config(folder, modules, len(weights["model"]["word"]["embedding"]))
    pooling, after = encoder_files.read_pooler(folder, modules[1:], config)
    if "dense" not in weights:
        dense = [path for kind, path in after if kind == "Dense"]
        weights |= {"dense": {str(i): encoder_files.read_dense(path) for i, path in enumerate(dense)}}
    tokenizer = encoder_files.load_tokenizer(folder / modules[0]["path"], config)
    limit = bilstm_files.max_length(folder, modules)
    model = Encoder(
        replace(config, pad_token_id=tokenizer.pad_token_id),
        {},
        tokenizer,
        pooling,
        max_length=limit,
        dtype=dtype,
        source=source,
    )
    return _with_modules(model, folder, after).with_weights(weights)


def _load_gguf(path: Path, source: str, dtype: str) -> Encoder:
    config, tensors, tokenizer = read_gguf(path)
    return Encoder(
        config=config,
        params=convert.from_hf(config, tensors, str(path)),
        tokenizer=encoder_files.checked_tokenizer(tokenizer, config, path),
        max_length=config.usable_positions,
        dtype=dtype,
        source=source,
    )
