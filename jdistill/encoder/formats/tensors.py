"""Files of weights: a stranger's are read whole, or refused with the file, the tensor and what was expected of it; ours are safetensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from jdistill.core.errors import UserError, first_line
from jdistill.core.files import as_new
from jdistill.core.json_files import read_settings, said
from jdistill.encoder.formats.pickled import load_pickled

WEIGHTS_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
BIN_FILE, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"  # read where the former are not


def write_tensors(tensors: Mapping[str, np.ndarray], path: Path) -> None:
    """Writes a safetensors file as torch's libraries expect it, for whoever may read its folder."""
    save_file(dict(tensors), path, metadata={"format": "pt"})
    as_new(path)


def load_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of one file, as they are: of safetensors, or of a `.bin` (load_pickled), also where only that lies beside `path`.

    Raises: UserError where it is missing, truncated or none of the format.
    """
    if path.name == WEIGHTS_FILE and not path.exists() and (beside := path.with_name(BIN_FILE)).is_file():
        path = beside
    if not path.is_file():
        raise UserError(f"{path} is {'no file' if path.exists() else 'missing'}")
    if path.suffix == ".bin":
        return load_pickled(path)
    try:
        return load_file(path)
    except AttributeError as error:  # of numpy, for one of 8 or 4 bits
        raise UserError(
            f"{path}: a tensor is of a type that is not read ({first_line(error)}); save the weights in float32, float16 or bfloat16"
        ) from None
    except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            f"{path} cannot be read ({first_line(error)}); it is truncated or not a safetensors file: fetch it again"
        ) from None


def read_tensors(folder: Path) -> dict[str, np.ndarray]:
    """The floating-point tensors of a model's folder, shards included, as float32 by name.

    Where a folder has its weights more than once, those are read that transformers takes: the whole file before shards, safetensors
    before `.bin`.

    Raises: UserError as load_tensors does, and for an index that is damaged or names a file outside the folder.
    """
    of_weights = (WEIGHTS_FILE, INDEX, BIN_FILE, BIN_INDEX)
    first = next((name for name in of_weights if (folder / name).is_file()), WEIGHTS_FILE)
    tensors: dict[str, np.ndarray] = {}
    for name in _shards(folder / first) if first in (INDEX, BIN_INDEX) else [first]:
        tensors.update(load_tensors(folder / name))
    return {
        name: np.asarray(tensor, np.float32)
        for name, tensor in tensors.items()
        if tensor.dtype.kind in "fV" or "bf" in str(tensor.dtype)
    }


def _shards(index: Path) -> list[str]:
    """The files that an index names. Raises UserError where it is damaged or names a file outside its folder."""
    settings = read_settings(index)
    names = settings.part("weight_map").values
    for tensor, name in names.items():
        if not isinstance(name, str) or not name or Path(name).name != name or "\0" in name:
            raise settings.fault(f"weight_map, {tensor[:80]!r},", f"is {said(name)}; a file's name is needed")
    if not names:
        raise settings.fault("weight_map", "names no file" if "weight_map" in settings.values else "is missing")
    return sorted(set(names.values()))


def float_tensor(tensors: Mapping[str, np.ndarray], name: str, shape: Sequence[int | None], where: Path) -> np.ndarray:
    """One tensor as float32.

    Args:
      shape: that it must have; None: any length.
      where: the file, for messages.

    Raises: UserError where it is missing, empty, of another shape, or no floating-point numbers.
    """
    if name not in tensors:
        raise UserError(f"{where}: tensor {name} is missing; there are {sorted(tensors)[:8]}")
    tensor = tensors[name]
    fits = len(shape) == tensor.ndim and all(
        wanted in (None, size) for wanted, size in zip(shape, tensor.shape, strict=True)
    )
    if not fits or not tensor.size:
        asked = [wanted or "any" for wanted in shape]
        raise UserError(f"{where}: tensor {name} has shape {list(tensor.shape)}; needed is {asked}".replace("'", ""))
    if tensor.dtype.kind not in "fV":
        raise UserError(f"{where}: tensor {name} holds {tensor.dtype}; floating-point numbers are needed")
    return np.asarray(tensor, np.float32)


def fitted_tree(params: Mapping[str, Any], shapes: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """The parameters as float32.

    Args:
      shapes: the tree that they must be, with a shape in the place of each array.
      where: the file, for messages.

    Raises: UserError naming what differs.
    """
    if params.keys() != shapes.keys():
        raise UserError(f"{where}: layers {sorted(map(str, params))} are there; needed are {sorted(shapes)}")
    fitted: dict[str, Any] = {}
    for name, shape in shapes.items():
        value = params[name]
        if isinstance(shape, Mapping) != isinstance(value, Mapping):
            raise UserError(
                f"{where}: {name} is {'one tensor' if isinstance(shape, Mapping) else 'a layer'}; it is damaged"
            )
        if isinstance(shape, Mapping):
            fitted[name] = fitted_tree(value, shape, where)
        else:
            fitted[name] = float_tensor({name: value}, name, shape, where)
    return fitted
