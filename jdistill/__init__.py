"""jdistill: distil a strong text-embedding teacher into a small student, in JAX.

import jdistill
model = jdistill.load("runs/simtde/export")
vectors = model.encode(["one sentence", "and another"])   # float32 [2, dim]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jdistill.encoder.encoder import Encoder
    from jdistill.encoder.loading import load

__all__ = ["Encoder", "load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Imports JAX with the first use, so that a command can first settle what must be settled before it (core.memory)."""
    if name in __all__:
        from jdistill.encoder import loading

        return getattr(loading, name)
    raise AttributeError(f"module 'jdistill' has no attribute {name!r}")
