"""Whether vectors tell texts apart: a teacher that answers every text alike makes a student of no use, without an error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.encoder.encoder import Encoder

COLLAPSE_SAMPLE = 500  # texts that are looked at
FEW_DIRECTIONS = 0.02  # of the directions that so many vectors could have: fewer is told
MUCH_UNKNOWN, ALL_UNKNOWN = 0.2, 0.95  # share of a text's tokens that the vocabulary lacks: told, refused
ALIKE = 1e-6  # distance from the mean vector, of its length, below which float32 tells nothing apart


def effective_rank(vectors: np.ndarray) -> float:
    """How many directions vectors [N, D] spread over, 0 where they are all alike.

    The exponential of the entropy of the centred matrix's singular values, as shares. Source: Roy and Vetterli 2007, definition 1.
    """
    rows = np.asarray(vectors, np.float64)
    rows = rows - rows.mean(0)
    lengths = np.linalg.norm(vectors, axis=1)
    if np.linalg.norm(rows, axis=1).max(initial=0.0) <= ALIKE * max(
        lengths.max(initial=0.0), np.finfo(np.float32).tiny
    ):
        return 0.0
    sizes = np.linalg.svd(rows, compute_uv=False)
    shares = sizes[sizes > 0] / sizes.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def check_finite(vectors: np.ndarray, whose: str) -> None:
    """Raises UserError for vectors [N, D] with a NaN or infinity. whose: who gave them, for the message."""
    if broken := int((~np.isfinite(vectors).all(1)).sum()):
        raise UserError(
            f"{whose} gives vectors with NaN or infinity for {broken} of {len(vectors)} texts: its weights are damaged, or its training "
            "diverged; take another checkpoint or fetch the weights again"
        )


def check_vectors(vectors: np.ndarray, whose: str) -> float:
    """The effective rank of the vectors of distinct texts; few directions are warned of.

    whose: who gave them, for the message. Raises UserError where all are alike, or one is not finite.
    """
    check_finite(vectors, whose)
    if len(vectors) < 2:
        return 0.0
    rank = effective_rank(vectors)
    if not rank:
        raise UserError(
            f"{whose} gives the same vector for each of {len(vectors)} different texts, so that there is nothing to learn from it or find with it: "
            "its tokenizer or its weights are not those it was trained with"
        )
    could_be = min(len(vectors) - 1, vectors.shape[1])
    if rank < max(min(2.0, 0.5 * could_be), FEW_DIRECTIONS * could_be):
        log.warning(
            "WARNING: %s spreads %d different texts over %.1f directions of %d: its vectors have collapsed, or the texts are all alike",
            whose, len(vectors), rank, vectors.shape[1],
        )  # fmt: skip
    return rank


def check_tokens(model: Encoder, texts: Sequence[str], whose: str) -> float:
    """The share of the texts' tokens that the vocabulary lacks; much is warned of. Raises UserError where hardly any token is known."""
    unknown = model.tokenizer.unk_token_id
    if unknown is None or not len(texts):
        return 0.0
    special = {*model.tokenizer.all_special_ids} - {unknown}
    ids = np.array([token for row in model.tokenize(texts) for token in row if token not in special], np.int64)
    share = float(np.mean(ids == unknown)) if len(ids) else 0.0
    if share >= ALL_UNKNOWN:
        raise UserError(
            f"{whose}: its vocabulary lacks {100 * share:.0f} % of the tokens of the text, so that it sees hardly anything of it; is the "
            "tokenizer its own, and the text in its language?"
        )
    if share >= MUCH_UNKNOWN:
        log.warning("WARNING: %s: its vocabulary lacks %.0f %% of the tokens of the text", whose, 100 * share)
    return share
