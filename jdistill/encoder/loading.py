"""The one way to load an Encoder: Hugging Face, sentence-transformers' and .gguf files, with the modules and prompts they bring."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.json_files import Settings, read_settings
from jdistill.core.progress import log
from jdistill.core.run_folder import refuse_run
from jdistill.data.text.locations import local_path, resolve
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import st_reader, st_settings
from jdistill.encoder.formats.body import body_of, read_params, split_modules, with_vocabulary
from jdistill.encoder.formats.gguf import read_gguf
from jdistill.encoder.formats.modules import ModuleFolder, read_modules, refuse_adapter, refuse_router
from jdistill.encoder.formats.pma import read_pma
from jdistill.encoder.formats.tokenizer import checked_limit, checked_tokenizer, load_tokenizer, lower_case
from jdistill.models.architecture import ModelConfig
from jdistill.models.pooling import POOLERS
from jdistill.models.precision import COMPUTE_TYPES
from jdistill.models.registry import OWN_MODULES, architecture_of

# The files that are wanted of a hub repository, whose other formats of the same weights can be as large again.
WANTED = [
    "*.json", "*.jinja", "*.safetensors", "*.txt", "*.model", "*Pooling/*", "*_Dense/*", "*_Interaction/*",
    *(f"*_{kind}/*" for kinds in OWN_MODULES for kind in kinds),
]  # fmt: skip
WANTED_BINS = ["*pytorch_model*.bin"]  # besides, where the model itself has no safetensors


def folder_of(source: str, key: str) -> Path:
    """Where a model's files lie, downloaded where it is a hub id; a .gguf file itself.

    Args:
      source: a path, a hub id or `pkg:import_name/sub/folder`.
      key: what error messages call it.

    Raises: UserError as data.text.locations.resolve does.
    """
    folder = resolve(source, key, allow_patterns=WANTED)
    has_safetensors = any((*folder.glob("*.safetensors"), *folder.glob("0_*/*.safetensors")))
    if not has_safetensors and local_path(source, key) is None:
        return resolve(source, key, allow_patterns=[*WANTED, *WANTED_BINS])
    return folder


def load(
    source: str | os.PathLike[str], *, key: str = "model", dtype: str = "float32", weights: dict[str, Any] | None = None
) -> Encoder:
    """Loads an encoder.

    Understood are Hugging Face folders (pooled as sentence-transformers does, by the mean or, of causal language models, the last token),
    sentence-transformers folders with Transformer, pooling, Dense and Normalize modules, prompts and maximum length, and .gguf files.

    Args:
      source: a path, a hub id or `pkg:import_name/sub/folder`.
      key: what error messages call it.
      dtype: of the computation, float32, bfloat16 or float16; parameters are float32.
      weights: taken instead of the folder's own, as Encoder.weights gives them.

    Returns: an Encoder whose parameters lie on the host.

    Raises: UserError for whatever is missing, damaged or does not fit together, and for another dtype.
    """
    source = os.fspath(source)  # of a Path too, where Python calls
    if dtype not in COMPUTE_TYPES:
        raise UserError(f"dtype={dtype!r} is not one of {', '.join(COMPUTE_TYPES)}")
    folder = folder_of(source, key)
    if folder.suffix == ".gguf":
        return _load_gguf(folder, source, dtype)
    if not folder.is_dir():
        raise UserError(f"--{key}={source}: {folder} is no folder of a model and no .gguf file")
    refuse_run(folder, source, key)
    if weights is None:
        _tell_damage(folder)
    modules = read_modules(folder)
    refuse_router(folder, modules, f"--{key}={source}")
    refuse_adapter(modules[0], f"--{key}={source}")
    architecture, own, rest = split_modules(folder, modules)
    body, root = body_of(own), own[0].folder
    config = architecture.read_config(body)
    _tell_own_code(root, config.model_type)
    pooling, after = st_reader.read_pooler(folder, rest, config, own)
    st_reader.check_steps(after)
    if weights is None:
        weights = {"model": read_params(config, body, root)}
        if pooling == "pma":
            weights["pooler"] = read_pma(rest[0].folder, config.hidden_size)
        weights["dense"] = st_reader.read_denses(after, POOLERS[pooling].width(config.hidden_size))
    config = with_vocabulary(config, weights["model"])
    tokenizer = load_tokenizer(root, config)
    if config.pad_token_id < 0:
        config = replace(config, pad_token_id=tokenizer.pad_token_id)
    listed = bool(own[0].row)  # in modules.json, without which sentence-transformers reads no settings of its own
    nothing = Settings({}, root)
    settings = st_settings.read_first_module(root, architecture.length_file) if listed else nothing
    limit = st_settings.read_limit(settings)
    named = bool(limit)
    if not architecture.recurrent:  # of which sentence-transformers does not ask the tokenizer
        st_settings.check_texts_as_they_are(settings, bool(tokenizer.chat_template), in_modules=listed)
        limit = limit or tokenizer.model_max_length
        if settings.flag("do_lower_case", False):
            lower_case(tokenizer)
    limit = checked_limit(_within_positions(limit or 0, config, named), tokenizer, root)
    counted = st_reader.includes_prompt(rest)
    model = Encoder(
        config, {}, tokenizer, pooling, include_prompt=counted, max_length=limit, dtype=dtype, source=source
    )
    encoding = st_settings.read_encoding(folder) if listed else nothing
    model = _with_modules(model, encoding, after).with_weights(weights)
    st_settings.check_encoding(encoding, model.dim, model.normalize)
    return model


def _tell_damage(folder: Path) -> None:
    """Warns where what is read of an export of ours is no longer what was written: somebody changed it, or a disk did.

    Its other files, such as its card and graphs, are not fetched from a hub, and anybody may change them.
    """
    if files.read_seal(folder, "export") and (wrong := files.damage(folder, "export", among=WANTED)):
        log.warning("WARNING: %s is not as it was exported: %s", folder, ", ".join(wrong))


def _tell_own_code(folder: Path, kind: str) -> None:
    """Says where a model's publisher runs it by code of its own, which is not run here, also where that computes the same."""
    own = read_settings(folder / "config.json", optional=True).part("auto_map")
    if "AutoModel" in own.values:
        log.info(
            "%s names code of its publisher's own (auto_map); computed here is %s as transformers has it", folder, kind
        )


def _within_positions(limit: float, config: ModelConfig, named: bool) -> int:
    """How many tokens of a text a model reads.

    Args:
      limit: as its folder has it; 0: it says nothing.
      config: of the model.
      named: the limit is meant for its vectors (max_seq_length), by which sentence-transformers reads beyond the positions that a model
        without a table of them was trained on; a tokenizer's is not.
    """
    positions = config.usable_positions
    if named and limit > positions and not architecture_of(config).position_table:
        return int(limit)
    return int(min(positions, limit or positions))


def _with_modules(model: Encoder, encoding: Settings, after: list[ModuleFolder]) -> Encoder:
    """The encoder with the projections' activations, normalisation and prompts of its folder. after: modules behind the pooler."""
    prompts, default = st_settings.prompts_of(encoding)
    return replace(
        model,
        normalize=after[-1:] != [] and after[-1].kind == "Normalize",
        dense_activations=tuple(st_reader.read_activation(module.folder) for module in after if module.kind == "Dense"),
        prompts=prompts,
        default_prompt=default,
    )


def _load_gguf(path: Path, source: str, dtype: str) -> Encoder:
    config, tensors, tokenizer, encoding = read_gguf(path)
    limit = _within_positions(encoding.pop("max_length", 0), config, named=True)
    return Encoder(
        config=config,
        params=architecture_of(config).from_tensors(config, tensors, str(path)),
        tokenizer=checked_tokenizer(tokenizer, config, path),
        max_length=checked_limit(limit, tokenizer, path),
        dtype=dtype,
        source=source,
        **encoding,
    )
