"""The one way to load an Encoder: Hugging Face, sentence-transformers' and .gguf files, with the modules and prompts they bring."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings
from jdistill.core.progress import log
from jdistill.data.text.locations import resolve
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import bilstm as bilstm_files
from jdistill.encoder.formats import hf, st_reader
from jdistill.encoder.formats.gguf import read_gguf
from jdistill.encoder.formats.modules import Module, read_modules
from jdistill.encoder.formats.pma import read_pma
from jdistill.encoder.formats.tokenizer import checked_limit, checked_tokenizer, load_tokenizer
from jdistill.models.decoder import DecoderConfig
from jdistill.models.pooling import POOLERS

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
    if not folder.is_dir():
        raise UserError(f"--{key}={source}: {folder} is no folder of a model and no .gguf file")
    if weights is None:
        _tell_damage(folder)
    modules = read_modules(folder)
    if bilstm_files.is_bilstm(modules):
        return _load_bilstm(folder, modules, source, dtype, weights)
    root = modules[0].folder
    config = hf.read_config(root)
    if modules[0].kind == "BidirectionalTransformer" and isinstance(config, DecoderConfig):
        config = replace(config, causal=False)
    pooling, after = st_reader.read_pooler(folder, modules, config)
    tokenizer = load_tokenizer(root, config)
    bert = read_settings(root / "sentence_bert_config.json", optional=True)
    if weights is None:
        weights = {"model": hf.from_hf(config, hf.read_tensors(root), str(root))}
        if pooling == "pma":
            weights["pooler"] = read_pma(modules[1].folder, config.hidden_size)
        weights["dense"] = st_reader.read_denses(after, POOLERS[pooling].width(config.hidden_size))
    limits = [config.usable_positions, st_reader.read_limit(bert), tokenizer.model_max_length]
    limit = checked_limit(int(min(limit for limit in limits if limit)), tokenizer, root)
    model = Encoder(config, {}, tokenizer, pooling, max_length=limit, dtype=dtype, source=source)
    return _with_modules(model, folder, after).with_weights(weights)


def _tell_damage(folder: Path) -> None:
    """Warns where an export of ours is no longer what was written: somebody changed it, or a disk did."""
    if files.read_seal(folder, "export") and (wrong := files.damage(folder, "export")):
        log.warning("WARNING: %s is not as it was exported: %s", folder, ", ".join(wrong))


def _with_modules(model: Encoder, folder: Path, after: list[Module]) -> Encoder:
    """The encoder with the projections' activations, normalisation and prompts of its folder. after: modules behind the pooler."""
    prompts, default = st_reader.read_prompts(folder)
    return replace(
        model,
        normalize=after[-1:] != [] and after[-1].kind == "Normalize",
        dense_activations=tuple(st_reader.read_activation(one.folder) for one in after if one.kind == "Dense"),
        prompts=prompts,
        default_prompt=default,
    )


def _load_bilstm(
    folder: Path, modules: list[Module], source: str, dtype: str, weights: dict[str, Any] | None
) -> Encoder:
    if weights is None:
        weights = {"model": bilstm_files.read_params(modules)}
    config = bilstm_files.read_config(modules, len(weights["model"]["word"]["embedding"]))
    pooling, after = st_reader.read_pooler(folder, modules[1:], config)
    if "dense" not in weights:
        weights |= {"dense": st_reader.read_denses(after, POOLERS[pooling].width(config.hidden_size))}
    tokenizer = load_tokenizer(modules[0].folder, config)
    model = Encoder(
        replace(config, pad_token_id=tokenizer.pad_token_id),
        {},
        tokenizer,
        pooling,
        max_length=checked_limit(bilstm_files.max_length(modules), tokenizer, modules[0].folder),
        dtype=dtype,
        source=source,
    )
    return _with_modules(model, folder, after).with_weights(weights)


def _load_gguf(path: Path, source: str, dtype: str) -> Encoder:
    config, tensors, tokenizer = read_gguf(path)
    return Encoder(
        config=config,
        params=hf.from_hf(config, tensors, str(path)),
        tokenizer=checked_tokenizer(tokenizer, config, path),
        max_length=checked_limit(config.usable_positions, tokenizer, path),
        dtype=dtype,
        source=source,
    )
