"""The interaction module (IEM) in an exported folder, held against Flax."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.encoder.formats.interaction import add_interaction, remove_interaction
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.encoder.torch_backend import has_sentence_transformers
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.export.written_folder import load_written
from jdistill.models.precision import exact_products

TOLERANCE = 1e-3  # max abs, float32, between Flax's logits and torch's


def save_interaction(model: PairScorer, folder: Path) -> float | None:
    """Adds the module to the encoder's exported folder; returns the largest difference of torch's logits of the probe texts from Flax's.
    None: nothing was compared, since torch is not installed (which is logged) or pairs are scored by their cosine. Raises UserError
    where they differ by more than TOLERANCE; the folder then has no such module."""
    if model.params is None:
        return None
    add_interaction(folder, model.params, model.encoder.dim, model.interaction)
    try:
        return _difference(model, folder)
    except BaseException:
        remove_interaction(folder)
        raise


def _difference(model: PairScorer, folder: Path) -> float | None:
    """As save_interaction, of a folder that has the module."""
    if not has_sentence_transformers():
        log.info("torch and sentence-transformers are not installed, so the interaction module was written unchecked")
        return None
    loaded = load_written(folder)
    queries, passages, difference, largest = list(PROBE_TEXTS), list(reversed(PROBE_TEXTS)), 0.0, 1.0
    for symmetric in (True, False):
        theirs = loaded[-1].score(loaded, queries, passages, symmetric=symmetric).numpy()
        with exact_products():
            ours = model.score(queries, passages, symmetric)
        difference, largest = (
            max(difference, float(np.abs(theirs - ours).max())),
            max(largest, float(np.abs(ours).max())),
        )
    if not difference <= TOLERANCE * largest:  # float32 rounds in proportion to the logits' size
        raise UserError(
            f"{folder}: torch's logits of the probe texts differ from Flax's by {difference:.2e}, more than {TOLERANCE * largest:.0e}"
        )
    return difference
