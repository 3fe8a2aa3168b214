"""What computes token states in a folder: its architecture, its modules, and the files that these are read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings
from jdistill.encoder.formats.modules import ModuleFolder
from jdistill.encoder.formats.tensors import read_tensors
from jdistill.models.architecture import Architecture, Body
from jdistill.models.registry import ModelConfig, architecture_of, transformer_named, with_modules

TRANSFORMERS = ("Transformer", "BidirectionalTransformer")  # the second is ours, of a decoder that sees both ways


def split_modules(
    folder: Path, modules: Sequence[ModuleFolder]
) -> tuple[Architecture[Any], list[ModuleFolder], list[ModuleFolder]]:
    """(architecture, its modules, those after it) of a folder.

    Args:
      modules: all of the folder, in their order.

    Raises: UserError for modules, and a model_type, that are not read.
    """
    kinds = [module.kind for module in modules]
    if architecture := with_modules(kinds):
        return (
            architecture,
            list(modules[: len(architecture.own_modules)]),
            list(modules[len(architecture.own_modules) :]),
        )
    if kinds[0] not in TRANSFORMERS:
        raise unread_modules(folder, kinds)
    return named_by(modules[0].folder), list(modules[:1]), list(modules[1:])


def unread_modules(folder: Path, kinds: Sequence[str]) -> UserError:
    """The error for a modules.json that lists what is not read."""
    return UserError(
        f"{folder}/modules.json lists {list(kinds)}; jdistill reads Transformer, Pooling (after WeightedLayerPooling, if "
        "there is one), then Dense and Normalize, of sentence-transformers' own or an export's. Any other model can teach through "
        "st:SOURCE (torch extra; one with code of its own by --config.trust_remote_code) or vectors:FILE"
    )


def named_by(folder: Path) -> Architecture[Any]:
    """The architecture that a Hugging Face folder's config.json names. Raises UserError if it is not one of ours."""
    path = folder / "config.json"
    if not path.exists() and not path.is_symlink():
        raise UserError(f"{folder} has no config.json, so it is not a Hugging Face model folder")
    return transformer_named(read_settings(path).text("model_type", ""), path)


def body_of(modules: Sequence[ModuleFolder]) -> Body:
    """The modules as an architecture reads them."""
    return [(module.kind, module.folder) for module in modules]


def read_model_config(folder: Path) -> ModelConfig:
    """The sizes that a Hugging Face folder's config.json describes.

    Raises: UserError if it is not of an architecture of ours, and naming the key that is missing, of another type or out of its range.
    """
    return named_by(folder).read_config([("Transformer", folder)])


def read_params(config: ModelConfig, body: Body, where: Path) -> dict[str, Any]:
    """Flax parameters, float32, from the safetensors of the modules that compute token states.

    Args:
      body: kind and folder of each.
      where: for messages.

    Raises: UserError as Architecture.from_tensors does.
    """
    tensors = {name: tensor for _, folder in body for name, tensor in read_tensors(folder).items()}
    return architecture_of(config).from_tensors(config, tensors, str(where))


def with_vocabulary(config: ModelConfig, params: Any) -> ModelConfig:
    """The config; where its file does not tell the size of the vocabulary, with the rows of the token table."""
    return config if config.vocab_size else replace(config, vocab_size=len(architecture_of(config).token_table(params)))
