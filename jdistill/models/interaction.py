"""D2LLM's interaction emulation module (IEM): the score of a pair from its two vectors, and what stands in its place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.types import Array, Tree
from jdistill.losses.embedding import HIGHEST, unit
from jdistill.models.pma import dense

HIDDEN = 512  # of the interaction module
BRANCHES = ("symmetric", "asymmetric")
INTERACTIONS = ("dual", "single", "cosine")  # a branch a task, one for both, none


def random_iem(width: int, rng: np.random.Generator, hidden: int = HIDDEN) -> Tree:
    """Parameters: first [2D, hidden]; a branch [hidden, hidden] for each of BRANCHES; score [hidden, 1]. float32. Beside them there may be
    cosine [], by which the cosine of the two vectors is scaled and added to the logit (students.pma.beside_cosine)."""

    def random_dense(rows: int, columns: int) -> dict[str, np.ndarray]:
        kernel = rng.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)
        return {"kernel": kernel, "bias": np.zeros(columns, np.float32)}

    branches = {name: random_dense(hidden, hidden) for name in BRANCHES}
    return {"first": random_dense(2 * width, hidden), "score": random_dense(hidden, 1)} | branches


def iem(params: Tree, query_nxD: Array, passage_nxD: Array, branch: str) -> tuple[Array, Array]:
    """The interaction module on pairs: f2(f1([y_i, y_j])) by the branch of the task, then a linear layer.

    Args:
      params: as random_iem has them.
      query_nxD, passage_nxD: vectors, float32.
      branch: its name in params.

    Returns: logits [n] and features [n, hidden], float32.

    Source: D2LLM eq. 6; cosines beside it are ours.
    """
    first = jax.nn.relu(dense(params["first"], jnp.concatenate([query_nxD, passage_nxD], axis=-1)))
    features = jax.nn.relu(dense(params[branch], first))
    z_n = dense(params["score"], features)[..., 0]
    if "cosine" in params:
        z_n = z_n + params["cosine"] * cosine_features(query_nxD, passage_nxD).sum(-1)
    return z_n, features


def cosine_features(query: Array, passage: Array) -> Array:
    """The products of two unit vectors' numbers, [..., D], whose sum is their cosine."""
    return unit(query) * unit(passage)


def iem_matrix(params: Tree, query_nxD: Array, passage_mxD: Array, branch: str) -> Array:
    """The logits of every query with every passage, float32 [n, m]. f1's products are made once for each side, not for each pair."""
    D = query_nxD.shape[-1]
    kernel, bias = params["first"]["kernel"], params["first"]["bias"]
    of_query, of_passage = (
        jnp.dot(side, part, precision=HIGHEST) for side, part in ((query_nxD, kernel[:D]), (passage_mxD, kernel[D:]))
    )
    sides_nxmxh = of_query[:, None] + (of_passage + bias)[None]
    features = jax.nn.relu(dense(params[branch], jax.nn.relu(sides_nxmxh)))
    z_nxm = dense(params["score"], features)[..., 0]
    return z_nxm + params["cosine"] * cosine_matrix(query_nxD, passage_mxD) if "cosine" in params else z_nxm


def cosine_matrix(query_nxD: Array, passage_mxD: Array) -> Array:
    """The cosine of every query with every passage, float32 [n, m], as exact as cosine_features' sums."""
    return jnp.dot(unit(query_nxD), unit(passage_mxD).T, precision=HIGHEST)


def interaction_of(cfg: ConfigDict) -> str:
    """cfg.interaction; with one kind of pairs alone, of which nothing would train the other branch, single in the place of dual."""
    return cfg.interaction if cfg.interaction != "dual" or (cfg.symmetric and cfg.asymmetric) else "single"


def one_branch(params: Tree | None, symmetric: Array, interaction: str) -> Tree | None:
    """The interaction module with the branch of a task as "branch"; None for cosines.

    Args:
      params: as random_iem has them; None: pairs are scored by their cosine.
      symmetric: bool scalar, the task.
      interaction: of INTERACTIONS; "single": the first branch serves both tasks.
    """
    if params is None:
        return None
    first, second = (params[name] for name in BRANCHES)
    branch = first if interaction == "single" else jax.tree.map(lambda a, b: jnp.where(symmetric, a, b), first, second)
    shared = {name: part for name, part in params.items() if name not in BRANCHES}
    return shared | {"branch": branch}


def score_pairs(head: Tree | None, query: Array, passage: Array) -> tuple[Array, Array]:
    """The logits of pairs of vectors.

    Args:
      head: as one_branch gives it.
      query, passage: float32 [..., D].

    Returns: logits [...] and features [..., F], float32; of no module the cosines, and cosine_features.
    """
    if head is not None:
        return iem(head, query, passage, "branch")
    features = cosine_features(query, passage)
    return features.sum(-1), features


def score_matrix(head: Tree | None, query_nxD: Array, passage_mxD: Array) -> Array:
    """The logits of every query with every passage, float32 [n, m].

    Args:
      head: as one_branch gives it.
    """
    if head is None:
        return cosine_matrix(query_nxD, passage_mxD)
    return iem_matrix(head, query_nxD, passage_mxD, "branch")
