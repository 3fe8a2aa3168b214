"""jdistill: distil a strong text-embedding teacher into a small student, in JAX.

import jdistill
model = jdistill.load("runs/simtde/export")
vectors = model.encode(["one sentence", "and another"])   # float32 [2, dim]
"""

from jdistill.encoder import Encoder, load

__all__ = ["Encoder", "load"]
__version__ = "0.1.0"
