"""The teacher's answers: our Encoder.encode and SentenceTransformer.encode, the same model and texts, a process each."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpu.made_up import make_encoder, make_texts, save
from gpu.parts import Cell, Row, Setting

LOOKED_AT = 512  # texts whose vectors are compared


def _texts(setting: Setting) -> list[str]:
    return make_texts(setting.pick(25_000, 40), make_encoder(setting).config.vocab_size)


def _vectors_of(setting: Setting, dtype: str, batch_size: int) -> Path:
    """Where our side leaves some vectors for the other."""
    return setting.folder / f"vectors-{dtype}-{batch_size}.npy"


def by_encoder(setting: Setting, dtype: str, batch_size: int) -> Row:
    """Texts a second, tokenising included, after a pass that compiles."""
    encoder, texts = replace(make_encoder(setting), dtype=dtype), _texts(setting)
    seconds, vectors = _seconds(partial(encoder.encode, texts, batch_size=batch_size), setting)
    np.save(_vectors_of(setting, dtype, batch_size), vectors[:LOOKED_AT])
    return {"texts_per_s": len(texts) / seconds} | products(dtype)


def by_sentence_transformers(setting: Setting, dtype: str, batch_size: int) -> Row:
    """The same, and how far its vectors are from ours."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.backends.cuda.matmul.allow_tf32 = True  # as JAX rounds float32 products on such a card
    folder, texts = str(save(make_encoder(setting), setting.folder / "teacher")), _texts(setting)
    theirs = SentenceTransformer(folder, model_kwargs={"dtype": getattr(torch, dtype)})
    encode: Callable[[], Any] = partial(
        theirs.encode, texts, batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False
    )
    # As a tensor: to numpy it takes bfloat16 vector by vector.
    seconds, vectors = _seconds(lambda: encode().float().cpu().numpy(), setting)
    row: Row = {"texts_per_s": len(texts) / seconds} | products(dtype)
    if (ours := _vectors_of(setting, dtype, batch_size)).is_file():
        row["largest_difference"] = float(np.abs(vectors[:LOOKED_AT] - np.load(ours)).max())
    return row


def products(dtype: str) -> Row:
    """How float32 products are rounded on a GPU of today, on both sides of a comparison."""
    return {"products": "TF32"} if dtype == "float32" else {}


def _seconds(encode: Callable[[], Any], setting: Setting) -> tuple[float, np.ndarray]:
    """The median of some passes after a first one, and the vectors."""
    taken, vectors = [], encode()
    for _ in range(setting.pick(3, 1)):
        began = time.perf_counter()
        vectors = encode()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken), np.asarray(vectors, np.float32)


def _cells(setting: Setting, by: str, measure: Callable[..., Row], seconds: float) -> Iterator[Cell]:
    """Both types at a large batch, then at sentence-transformers' own."""
    kinds = setting.pick((("bfloat16", 512), ("float32", 512), ("bfloat16", 32)), (("float32", 16),))
    for dtype, batch_size in kinds:
        labels = {"by": by, "dtype": dtype, "batch": batch_size}
        yield Cell(labels, partial(measure, setting, dtype, batch_size), seconds)


def ours(setting: Setting) -> Iterator[Cell]:
    """Ours; each type and batch size compiles a program for each of some ten widths."""
    return _cells(setting, "jdistill", by_encoder, 20)


def theirs(setting: Setting) -> Iterator[Cell]:
    """Sentence-transformers'."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the card is torch's
    return _cells(setting, "sentence-transformers", by_sentence_transformers, 10)
