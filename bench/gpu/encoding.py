"""The teacher's answers: our Encoder.encode beside SentenceTransformer.encode, the same model and texts."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpu.made_up import make_encoder, make_texts, save
from gpu.parts import Cell, Row, Setting


def both(setting: Setting, dtype: str, batch_size: int) -> Row:
    """Texts a second of either side, tokenising included, each after a pass that compiles and warms up."""
    import torch
    from sentence_transformers import SentenceTransformer

    encoder = replace(make_encoder(setting), dtype=dtype)
    texts = make_texts(setting.pick(50_000, 40), encoder.config.vocab_size)
    theirs = SentenceTransformer(
        str(save(encoder, setting.folder / "teacher")), model_kwargs={"dtype": getattr(torch, dtype)}
    )
    ours, vectors = _seconds(partial(encoder.encode, texts, batch_size=batch_size), setting)
    in_torch = partial(theirs.encode, texts, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False)
    # As a tensor: to numpy it takes bfloat16 vector by vector.
    other, others = _seconds(lambda: in_torch().float().cpu().numpy(), setting)
    return {
        "jdistill_per_s": len(texts) / ours,
        "sentence_transformers_per_s": len(texts) / other,
        "ratio": other / ours,
        "largest_difference": float(np.abs(vectors - others).max()),
    }


def _seconds(encode: Callable[[], Any], setting: Setting) -> tuple[float, Any]:
    """The median of some passes after a first one, and the vectors."""
    taken, vectors = [], encode()
    for _ in range(setting.pick(3, 1)):
        began = time.perf_counter()
        vectors = encode()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), np.asarray(vectors, np.float32)


def cells(setting: Setting) -> Iterator[Cell]:
    """Both types at a large batch, then at sentence-transformers' own."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # torch needs memory of the same card
    kinds = setting.pick((("bfloat16", 512), ("float32", 512), ("bfloat16", 32)), (("float32", 16),))
    for dtype, batch_size in kinds:
        yield Cell({"dtype": dtype, "batch": batch_size}, partial(both, setting, dtype, batch_size), 15)
