"""llama.cpp, by llama-cpp-python: the file pools and says how; normalisation is asked for."""

import sys

import llama_cpp
import numpy as np
from measure import FOLDER, measure

CONTEXT = 512  # tokens of a batch; a longer text would be cut without its last special token
model = llama_cpp.Llama(
    str(FOLDER / "gguf" / sys.argv[3]), embedding=True, n_ctx=CONTEXT, n_batch=CONTEXT, n_ubatch=CONTEXT, verbose=False
)


def encode(texts: list[str], batch: int) -> np.ndarray:
    """The vectors of texts, so many at a time."""
    parts = [texts[i : i + batch] for i in range(0, len(texts), batch)]
    return np.array([row for part in parts for row in model.embed(part, normalize=True)], np.float32)


measure(encode, "llama-cpp-python")
