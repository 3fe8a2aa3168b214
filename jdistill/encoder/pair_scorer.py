"""A bi-encoder with an interaction module: scores of pairs from vectors that are made once for each text (D2LLM, eq. 6).

In an exported folder the module stands behind the pooler (formats/st_modules/interaction.py says how torch users call it).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.errors import UserError
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.interaction import read_interaction
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.encoder.text_lists import checked_texts, distinct_texts
from jdistill.models.interaction import INTERACTIONS, one_branch, score_matrix, score_pairs

LOGIT_ROWS, LOGIT_COLUMNS = (
    16,
    8192,
)  # of a matrix of logits that is made at once: its hidden units are [queries, passages, F]


@dataclass(frozen=True)
class PairScorer:
    """What scores pairs of texts from their vectors.

    Args:
      encoder: gives each text a vector.
      params: of the interaction module (models.interaction.random_iem), float32; None where pairs are scored by their cosine.
      interaction: of models.interaction.INTERACTIONS.
    """

    encoder: Encoder
    params: dict[str, Any] | None = field(repr=False)
    interaction: str = "dual"

    def score(self, queries: Iterable[str], passages: Iterable[str], symmetric: bool) -> np.ndarray:
        """The logit of each pair of texts; each distinct text is encoded once.

        Args:
          queries, passages: N strings each.
          symmetric: whether the question is if the two say the same; else if the passage answers the query.

        Returns: float32 [N]; cosines where there is no interaction module.

        Raises: UserError for sides of different lengths, and for one string in the place of a side.
        """
        left, right = checked_texts(queries, "queries"), checked_texts(passages, "passages")
        if len(left) != len(right):
            raise UserError(f"{len(left)} queries and {len(right)} passages are no pairs")
        return self.of_vectors(*pair_vectors(self.encoder, left, right), symmetric)

    def of_vectors(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool) -> np.ndarray:
        """The logit of each pair of vectors.

        Args:
          query_vectors, passage_vectors: float32 [N, D].
          symmetric: as in score.

        Returns: float32 [N].

        Raises: UserError for NaN or infinity among them.
        """
        logits = _score(self.params, query_vectors, passage_vectors, symmetric, interaction=self.interaction)
        return self._finite(np.asarray(logits))

    def rescore(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool = False) -> np.ndarray:
        """The logits of each query with passages of its own.

        Args:
          query_vectors: float32 [n, D].
          passage_vectors: float32 [n, k, D].
          symmetric: as in score.

        Returns: float32 [n, k].

        Raises: UserError for NaN or infinity among them.
        """
        queries = np.broadcast_to(query_vectors[:, None], passage_vectors.shape)
        logits = _score(self.params, queries, passage_vectors, symmetric, interaction=self.interaction)
        return self._finite(np.asarray(logits))

    def every(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool = False) -> np.ndarray:
        """The logits of every query with every passage, a block of queries and passages at a time.

        Args:
          query_vectors: float32 [n, D].
          passage_vectors: float32 [m, D].
          symmetric: as in score.

        Returns: float32 [n, m].

        Raises: UserError for NaN or infinity among them.
        """
        part = partial(_matrix, self.params, symmetric=symmetric, interaction=self.interaction)
        logits = np.empty((len(query_vectors), len(passage_vectors)), np.float32)
        for i in range(0, len(query_vectors), LOGIT_ROWS):
            for j in range(0, len(passage_vectors), LOGIT_COLUMNS):
                rows, columns = slice(i, i + LOGIT_ROWS), slice(j, j + LOGIT_COLUMNS)
                logits[rows, columns] = part(query_vectors[rows], passage_vectors[columns])
        return self._finite(logits)

    def _finite(self, logits: np.ndarray) -> np.ndarray:
        """The logits. Raises UserError where one is none: a ranking would take it for a place like others."""
        if broken := int((~np.isfinite(logits)).sum()):
            raise UserError(
                f"{self.encoder.source}: its interaction module gives NaN or infinity for {broken} of {logits.size} pairs: its weights are "
                "damaged, or its training diverged; take another checkpoint or fetch the weights again"
            )
        return logits


def pair_vectors(
    encoder: TextEncoder,
    queries: Sequence[str],
    passages: Sequence[str],
    show_progress: bool = False,
    alike: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of both sides of N pairs, by the prompts for queries and documents; each distinct text is encoded once.

    Args:
      queries, passages: N strings each.
      alike: both sides by the model's default prompt, so that equal texts have equal vectors.

    Returns: float32 [N, D] of the queries, and of the passages.
    """

    def vectors_of(texts: Sequence[str], prompt: str | None) -> np.ndarray:
        distinct, rows = distinct_texts(texts)
        return encoder.encode(distinct, prompt=prompt, show_progress=show_progress)[rows]

    if alike:
        both = vectors_of([*queries, *passages], None)
        return both[: len(queries)], both[len(queries) :]
    return vectors_of(queries, encoder.prompt_for("query")), vectors_of(passages, encoder.prompt_for("document"))


@partial(jax.jit, static_argnames="interaction")
def _score(params: Any, query: jax.Array, passage: jax.Array, symmetric: bool, *, interaction: str) -> jax.Array:
    return score_pairs(one_branch(params, jnp.asarray(symmetric), interaction), query, passage)[0]


@partial(jax.jit, static_argnames="interaction")
def _matrix(params: Any, query: jax.Array, passage: jax.Array, *, symmetric: bool, interaction: str) -> jax.Array:
    return score_matrix(one_branch(params, jnp.asarray(symmetric), interaction), query, passage)


def load_pair_scorer(source: str | os.PathLike[str], key: str = "model") -> PairScorer:
    """An encoder with its interaction module; of a folder without one, pairs are scored by their cosine.

    Args:
      source: a path, a hub id or `pkg:import_name/sub/folder`.
      key: what error messages call it.

    Raises: UserError as loading.load does, and for a module that is of vectors of another width.
    """
    source = os.fspath(source)
    encoder = loading.load(source, key=key)
    folder = loading.folder_of(source, key)
    module = read_interaction(folder, INTERACTIONS) if folder.is_dir() else None
    if module is None:
        return PairScorer(encoder, None, "cosine")
    params, kind = module
    if len(params["first"]["kernel"]) != 2 * encoder.dim:
        raise UserError(
            f"{source}: its interaction module is for vectors of {len(params['first']['kernel']) // 2} numbers, and the model's have "
            f"{encoder.dim}; they do not belong together"
        )
    return PairScorer(encoder, params, kind)
