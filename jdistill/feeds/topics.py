"""Texts of like topics, so that a batch can hold them together: a contrastive loss then has negatives that are hard to tell apart."""

from __future__ import annotations

import faiss
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.files import look_into, write_json
from jdistill.core.mapped import slices_of
from jdistill.core.progress import log
from jdistill.core.shared_folders import made_once
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.order import LARGE
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.tokens import cache_folder
from jdistill.models.registry import architecture_of

# A share of all tokens: a token as frequent counts half as much as one that is hardly ever there (Arora et al. 2017).
RARE = 1e-3
K_MEANS_ROUNDS = 10  # of k-means
VECTORS_AT_ONCE = 50_000  # texts whose vectors are made at once


def topics_of(cfg: ConfigDict, student: Encoder, tokens: TokenTable) -> np.ndarray:
    """The topic of each text, int64 [N], one of cfg.topics: clusters of the mean of its tokens' embeddings, rare ones weighing more.

    A cluster that fills no batch is none: its texts, which no epoch would read, go to the nearest that does. Kept by content, since other
    machines may round otherwise; of several processes the first makes them.

    Args:
      student: whose table of token embeddings it starts with; nothing is encoded.
      tokens: of N texts.

    Raises: UserError for more texts than an order of groups holds, too few to fill a batch of each topic, and a student that reads by
      another vocabulary than that table's.
    """
    if cfg.student.get("glove"):
        raise UserError(f"--config.topics={cfg.topics} sorts texts by word pieces; leave --config.student.glove empty")
    if len(tokens) > LARGE:
        raise UserError(f"--config.topics={cfg.topics} sorts up to {LARGE:,} texts, and there are {len(tokens):,}")
    if len(tokens) < cfg.topics * cfg.batch_size:
        raise UserError(
            f"--config.topics={cfg.topics}: {len(tokens)} texts do not fill a batch of {cfg.batch_size} for each; lower it"
        )
    table = np.asarray(architecture_of(student.config).token_table(student.params), np.float32)
    name = digest(
        repr((cfg.topics, K_MEANS_ROUNDS, RARE, "of means", cfg.batch_size)), table, tokens.ids, tokens.offsets
    )
    path = cache_folder(cfg) / "topics" / f"{name}.json"

    def make() -> None:
        write_json(path, clusters(text_vectors(table, tokens), cfg.topics, cfg.batch_size).tolist())

    topics = np.array(made_once(path, lambda: look_into(path), make, "topics"), np.int64)
    full = np.bincount(topics, minlength=cfg.topics) // cfg.batch_size * cfg.batch_size
    left = len(tokens) - int(full.sum())
    log.info("%d topics of %d texts, of which %d an epoch fill no batch", len(np.unique(topics)), len(tokens), left)
    return topics


def text_vectors(table_VxE: np.ndarray, tokens: TokenTable) -> np.ndarray:
    """The weighted mean of each text's token embeddings, less what all texts have in common, of length one.

    Args:
      table_VxE: token embeddings, float32.

    Returns: float32 [N, E].
    """
    counts = tokens.counts(len(table_VxE))
    weighted = table_VxE * (RARE / (RARE + counts / max(counts.sum(), 1)))[:, None].astype(np.float32)
    vectors = np.zeros((len(tokens), table_VxE.shape[1]), np.float32)
    for start in range(0, len(tokens), VECTORS_AT_ONCE):
        stop = min(start + VECTORS_AT_ONCE, len(tokens))
        offsets = np.asarray(tokens.offsets[start : stop + 1], np.int64)
        real = np.flatnonzero(np.diff(offsets))
        if len(real):
            of_tokens = weighted[np.asarray(tokens.ids[offsets[0] : offsets[-1]], np.int64)]
            sums = np.add.reduceat(of_tokens, offsets[:-1][real] - offsets[0], axis=0)
            # By a text's length: what all tokens share would else stand in a sum as often as it has tokens, and be most of its topic.
            vectors[start + real] = sums / np.diff(offsets)[real][:, None]
    vectors -= vectors.mean(0)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def clusters(unit_NxE: np.ndarray, count: int, least: int) -> np.ndarray:
    """The cluster of each row by k-means on the sphere, int64 [N]; the seed is fixed, so that runs of several seeds share them.

    Args:
      count: of clusters that are sought.
      least: rows that a cluster has; those of smaller ones are given to the nearest of the others.
    """
    k_means = faiss.Kmeans(
        unit_NxE.shape[1], count, niter=K_MEANS_ROUNDS, seed=1, spherical=True, min_points_per_centroid=1
    )
    k_means.train(unit_NxE)
    _, nearest = k_means.index.search(unit_NxE, 1)
    of_row = nearest[:, 0].astype(np.int64)
    large = np.flatnonzero(np.bincount(of_row, minlength=count) >= least)
    alone = np.flatnonzero(~np.isin(of_row, large))
    centres = np.asarray(k_means.centroids).reshape(count, -1)[large]
    for block in slices_of(len(alone), VECTORS_AT_ONCE):
        of_row[alone[block]] = large[(unit_NxE[alone[block]] @ centres.T).argmax(1)]
    return of_row
