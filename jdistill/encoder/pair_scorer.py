"""A bi-encoder with an interaction module: scores of pairs from vectors that are made once for each text (D2LLM, eq. 6).

In an exported folder the module stands behind the pooler (exported/interaction.py says how torch users call it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.errors import UserError
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder, TextEncoder
from jdistill.encoder.formats.interaction import read_interaction
from jdistill.models.interaction import INTERACTIONS, matrix, one_branch, score

QUERIES_AT_ONCE = 16  # of a matrix of logits, whose hidden units are [queries, passages, F]


@dataclass(frozen=True)
class PairScorer:
    """params: of the interaction module (models.pma.random_iem), None where pairs are scored by their cosine."""

    encoder: Encoder
    params: dict[str, Any] | None
    interaction: str = "dual"

    def score(self, queries: Sequence[str], passages: Sequence[str], symmetric: bool) -> np.ndarray:
        """The logit of each pair, float32 [N]; each distinct text is encoded once."""
        if len(queries) != len(passages):
            raise UserError(f"{len(queries)} queries and {len(passages)} passages are no pairs")
        return self.of_vectors(*pair_vectors(self.encoder, queries, passages), symmetric)

    def of_vectors(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool) -> np.ndarray:
        """The logit of each pair of vectors: two [N, D] to float32 [N]."""
        logits = _score(self.params, query_vectors, passage_vectors, symmetric, interaction=self.interaction)
        return np.asarray(logits)

    def rescore(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool = False) -> np.ndarray:
        """The logits of each query with its own passages: [n, D] and [n, k, D] to float32 [n, k]."""
        queries = np.broadcast_to(query_vectors[:, None], passage_vectors.shape)
        return np.asarray(_score(self.params, queries, passage_vectors, symmetric, interaction=self.interaction))

    def every(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool = False) -> np.ndarray:
        """The logits of all pairs of vectors, float32 [n, m], a block of queries at a time."""
        whole = partial(_matrix, self.params, symmetric=symmetric, interaction=self.interaction)
        starts = range(0, len(query_vectors), QUERIES_AT_ONCE)
        blocks = [np.asarray(whole(query_vectors[i : i + QUERIES_AT_ONCE], passage_vectors)) for i in starts]
        return np.concatenate(blocks) if blocks else np.zeros((0, len(passage_vectors)), np.float32)


def pair_vectors(
    encoder: TextEncoder, queries: Sequence[str], passages: Sequence[str], show_progress: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of N queries and of N passages, float32 [N, D] each; each distinct text is encoded once."""
    sides = []
    for texts, role in ((queries, "query"), (passages, "document")):
        row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors = encoder.encode(list(row_of), prompt=encoder.prompt_for(role), show_progress=show_progress)
        sides.append(vectors[[row_of[text] for text in texts]])
    return sides[0], sides[1]


@partial(jax.jit, static_argnames="interaction")
def _score(params: Any, query: jax.Array, passage: jax.Array, symmetric: bool, *, interaction: str) -> jax.Array:
    return score(one_branch(params, jnp.asarray(symmetric), interaction), query, passage)[0]


@partial(jax.jit, static_argnames="interaction")
def _matrix(params: Any, query: jax.Array, passage: jax.Array, *, symmetric: bool, interaction: str) -> jax.Array:
    return matrix(one_branch(params, jnp.asarray(symmetric), interaction), query, passage)


def load_pair_scorer(source: str, key: str = "model") -> PairScorer:
    """An encoder with its interaction module; of a folder without one, pairs are scored by their cosine."""
    encoder = loading.load(source, key=key)
    folder = loading.folder_of(source, key)
    found = read_interaction(folder, INTERACTIONS) if folder.is_dir() else None
    if found is None:
        return PairScorer(encoder, None, "cosine")
    params, kind = found
    if len(params["first"]["kernel"]) != 2 * encoder.dim:
        raise UserError(
            f"{source}: its interaction module is for vectors of {len(params['first']['kernel']) // 2} numbers, and the model's have "
            f"{encoder.dim}; they do not belong together"
        )
    return PairScorer(encoder, params, kind)
