"""Weights in a `.bin`, which is a pickle: torch's reader of tensors alone (weights_only) reads it, or it is refused; pickle never does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.errors import UserError, first_line

LEAST_TORCH = (2, 6)  # older ones' weights_only could be led to run code
INSTEAD = "save it again with safetensors where you trust it, or look for a copy that has them"


def load_pickled(path: Path) -> dict[str, np.ndarray]:
    """The floating-point tensors of a `.bin` by name, bfloat16 as float32.

    Raises: UserError without torch, with one older than LEAST_TORCH, and for a file that holds anything but tensors by their names.
    """
    torch = _torch(path)
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(weights, dict):
            raise TypeError(f"it holds a {type(weights).__name__}, not tensors by their names")
        tensors = {
            name: _array(torch, str(name), tensor) for name, tensor in weights.items() if _is_float(torch, tensor)
        }
        if not tensors or any(isinstance(value, dict) for value in weights.values()):
            raise TypeError("it holds no tensors by their names, or more than these")
    except Exception as error:  # an UnpicklingError for what would run, and whatever a damaged file raises
        raise UserError(
            f"{path} is refused: torch reads from it tensors alone (weights_only), and says: {first_line(error)[:200]}; {INSTEAD}"
        ) from None
    return tensors


def _torch(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} is a pickle, which may run code; torch alone reads its weights and nothing else: "
            f"pip install -e '.[torch]', or {INSTEAD}"
        ) from None
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < LEAST_TORCH:
        least = ".".join(map(str, LEAST_TORCH))
        raise UserError(
            f"{path} is a pickle, and torch {torch.__version__} could be led to run it; install {least} or newer"
        )
    return torch


def _is_float(torch: Any, value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _array(torch: Any, name: str, tensor: Any) -> np.ndarray:
    """The tensor's numbers. Raises ValueError for one that tells of more numbers than the file holds."""
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise ValueError(f"tensor {name[:80]} tells of {tensor.numel():,} numbers, more than there are")
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
