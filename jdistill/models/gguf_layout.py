"""How llama.cpp knows a model: the names of its tensors and its fields in a GGUF file, which each architecture tells of itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from jdistill.core.json_files import Settings

Tensor = TypeVar("Tensor")
_NUMBER = re.compile(r"(?<=\.)\d{1,9}(?=\.)")


@dataclass(frozen=True)
class GgufKind:
    """One of llama.cpp's architectures, as it is read.

    Args:
      name: as general.architecture has it.
      names: name of a tensor at Hugging Face, without .weight or .bias, with {i} for the layer -> its name in GGUF.
      read: (fields, tensors float32 by Hugging Face's names) -> the sizes, and the tensors as Hugging Face has them; raises UserError for
        a field that is missing or not computed here. The token table is among the tensors, and a matrix; block_count is theirs.
    """

    name: str
    names: Mapping[str, str]
    read: Callable[[Settings, dict[str, np.ndarray]], tuple[Any, dict[str, np.ndarray]]]


@dataclass(frozen=True)
class GgufModel:
    """A model as llama.cpp computes it.

    Args:
      kind: name of one of its architectures.
      fields: by their whole names; bool, int, float, str, or a list of one of these.
      tensors: float32, by their names in GGUF.
    """

    kind: str
    fields: dict[str, Any]
    tensors: dict[str, np.ndarray]


def renamed(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors by other names; those that `names` does not list are left out.

    Args:
      tensors: by names that end in .weight or .bias, a layer's with its number between two dots.
      names: old name without that ending, with {i} for the number -> new name.
    """
    out = {}
    for name, tensor in tensors.items():
        owner, _, leaf = name.rpartition(".")
        number = _NUMBER.search(owner)
        new = names.get(_NUMBER.sub("{i}", owner, count=1))
        if new is not None:
            out[f"{new.replace('{i}', number[0] if number else '')}.{leaf}"] = tensor
    return out


def inverse(names: Mapping[str, str]) -> dict[str, str]:
    """Names in GGUF -> names at Hugging Face."""
    return {new: old for old, new in names.items()}
