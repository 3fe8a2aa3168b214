"""The FAISS index of a folder of vectors that jdistill.embed wrote, filled piece by piece, in its folder `index`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings
from jdistill.core.progress import log
from jdistill.data.text.vector_folder import EMBEDDINGS_SEAL
from jdistill.data.text.vector_store import open_store
from jdistill.retrieval.index import ABOUT, INDEX_SEAL, fill_index, unit_rows
from jdistill.retrieval.index_kinds import check_kind, training_rows


def tell_older_index(folder: Path, texts: int | None) -> None:
    """Warns where the folder's index is of fewer or more texts than its vectors are. texts: how many those are, None: not known yet."""
    rows = None
    with suppress(UserError):  # of a damaged file, which the search names
        rows = read_settings(folder / "index" / ABOUT, optional=True).raw("rows", None)
    if texts is not None and rows is not None and rows != texts:
        log.warning(
            "WARNING: %s is of %d texts, and %s holds %d: python -m jdistill.embed with --index makes it anew",
            folder / "index",
            rows,
            folder,
            texts,
        )


def index_folder(folder: Path, kind: str, effort: str = "") -> None:
    """Writes the index of a finished folder, which jdistill.search answers from; one that is there and whole stays.

    In memory are the index itself and the vectors that it is trained on.

    Args:
      folder: of jdistill.embed, with the texts.
      kind, effort: as retrieval.index.build_index has them.

    Raises: UserError for a folder that is not finished or has no texts, and a kind that FAISS does not make of it.
    """
    store = open_store(folder, "out")
    texts = store.texts
    if texts is None:
        raise UserError(f"{folder} has no texts to answer with: write it without --without_text")
    out = folder / "index"
    settings: dict[str, Any] = {"index": kind, "index_effort": effort, "vectors": store.fingerprint}
    seal = files.read_seal(out, INDEX_SEAL)
    if seal is not None and seal.get("settings") == settings and not files.damage(out, INDEX_SEAL):
        log.info("%s is there", out)
        return
    check_kind(kind, effort, store.width, len(store))
    size = min(len(store), training_rows(kind, store.width))
    sample = unit_rows(store.vectors(np.linspace(0, len(store) - 1, size).astype(np.int64)))
    made = fill_index(sample, map(unit_rows, store.pieces()), kind, effort, rows=len(store))
    about = (files.read_seal(folder, EMBEDDINGS_SEAL) or {})["settings"]
    made.save(out, texts, about["fingerprint"], **settings)
    log.info("%s: %s of %d vectors", out, kind, made.rows)
