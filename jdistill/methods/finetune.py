"""Stage 2 of IBKD (eq. 9 to 11), and of every method compared with it: supervised InfoNCE on triplets, plus HSIC.

Each anchor is to pick its positive among all positives and negatives of the batch; its own positive is not counted against it when it comes
with another row, nor another row's positive of the same anchor, where the authors' code counts both. Where the triplets have scores of a
reranker, the student may imitate them, with InfoNCE beside that or not (ours). A projection to output_dim, if asked for, is learnt here
and exported with the student.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.data.batching.order import sample_rows
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.triplets import LabelledTriplets
from jdistill.losses.embedding import info_nce
from jdistill.losses.listed import SCORE_LOSSES, listed_similarities
from jdistill.methods import information
from jdistill.models.pooling import POOLERS
from jdistill.models.registry import architecture_of
from jdistill.students.shape import check_student
from jdistill.students.transformer import of_rows, projected, representer
from jdistill.train.method import Method, scalars

PROJECTION_STARTS = ("pca", "random")
STUDENT_PCA_TEXTS = 4096  # texts that the PCA start is fitted to


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """The stage, if cfg.triplets names data; cfg.finetune's keys take the place of the run's own. Raises UserError for a
    temperature that is not positive, a batch of one or too small for HSIC, names that are not listed, a loss of nothing, and a projection
    without the stage."""
    if not cfg.triplets:
        if cfg.output_dim:
            raise UserError(
                f"--config.output_dim={cfg.output_dim}: the projection is learnt in stage 2, and --config.triplets is empty; name triplets, set "
                "--config.output_dim=0, or choose configs/ibkd.py:hpd, which projects in stage 1"
            )
        return ()
    changed = cfg.copy_and_resolve_references()
    changed.update(cfg.finetune)
    changed.packed = cfg.packed and cfg.finetune.get("packed", False)
    scalars(changed.loss, "temperature")
    if changed.batch_size < 2:
        raise UserError("--config.finetune.batch_size=1: InfoNCE needs at least 2 triplets in a batch")
    information.check_hsic(changed, 2 * changed.batch_size)
    if cfg.projection_start not in PROJECTION_STARTS:
        raise UserError(
            f"--config.projection_start={cfg.projection_start!r} is not one of {', '.join(PROJECTION_STARTS)}"
        )
    _check_scores(changed)
    return (Stage("finetune", LabelledTriplets(bool(changed.loss.scores), packs=True), changed, build),)


def _check_scores(cfg: ConfigDict) -> None:
    """Raises UserError for a loss of scores that is not listed, and for InfoNCE weighed against none."""
    loss = cfg.loss
    if loss.scores and loss.scores not in SCORE_LOSSES:
        raise UserError(f"--config.loss.scores={loss.scores!r} is not one of {', '.join(SCORE_LOSSES)}, or empty")
    if not loss.scores and loss.in_batch != 1:
        raise UserError(
            f"--config.loss.in_batch={loss.in_batch} weighs InfoNCE beside the loss of scores, and --config.loss.scores is empty: name one "
            f"of {', '.join(SCORE_LOSSES)}, or leave it at 1"
        )


def build(cfg: ConfigDict, context: Start) -> Method:
    """Binds the stage to the student of the stage before. Raises UserError for keys that do not fit it."""
    config = architecture_of(context.encoder.config).with_dropout(context.encoder.config, cfg.student.dropout)
    student = dataclasses.replace(context.encoder, config=config)
    if cfg.output_dim:
        student = with_projection(cfg, student, context)
    represent = of_rows(representer(student, cfg.dtype))

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        metrics: dict[str, Array] = {}
        total = jnp.float32(0.0)
        if cfg.loss.in_batch:
            metrics["info_nce"] = in_batch_loss(cfg, frozen["temperature"], reps["output"], batch)
            total = frozen["in_batch"] * metrics["info_nce"] if cfg.loss.scores else metrics["info_nce"]
        if cfg.loss.scores:  # beyond the paper
            metrics[cfg.loss.scores] = score_loss(cfg, frozen, reps["output"], batch)
            total = total + frozen["scores_weight"] * metrics[cfg.loss.scores]
        if cfg.loss.beta:  # over all n(K+2) texts, S before the projection
            x, s = (reps[name].reshape(-1, reps[name].shape[-1]) for name in ("input", "sentence"))
            value, watch = information.term(cfg, x, s, batch["real"].reshape(-1), text_numbers(batch))
            total = total + frozen["beta"] * value  # eq. 9
            metrics |= watch
        return total, metrics | {"loss": total}

    names = ("temperature", "beta", *(("in_batch", "scores_weight", "scores_temperature") if cfg.loss.scores else ()))
    return Method({"student": student.weights()}, student, scalars(cfg.loss, *names), represent, objective)


def text_numbers(batch: dict[str, Array]) -> Array | None:
    """A number for each text of a packed batch, whatever order its triplets stand in, int32 [n (K+2)]; None: they stand in one order."""
    if "row" not in batch:
        return None
    columns = batch["real"].shape[1]
    return (batch["row"][:, None] * columns + jnp.arange(columns, dtype=jnp.int32)).reshape(-1)


def in_batch_loss(cfg: ConfigDict, temperature: Array, out: Array, batch: dict[str, Array]) -> Array:
    """Eq. 10, as the authors run it or as it is printed (loss.own_negatives).

    Args:
      out: the student's vectors [n, K+2, d']: anchor, positive, negatives.
      batch: real bool [n, K+2]; texts int32 [n, K+2], equal for equal texts.

    Returns: scalar, float32.
    """
    real = batch["real"]
    anchors, positives, negatives = out[:, 0], out[:, 1], out[:, 2:]
    D = out.shape[-1]
    # Another row's text is no negative where it is this row's own positive or anchor, nor is its positive where it has the same anchor. Its
    # mined negative that a third row names as this anchor's positive counts: to leave it out too takes an n x m matrix whole, in no block.
    texts = batch["texts"]
    anchor_keys = jnp.stack([texts[:, 0], texts[:, 1], texts[:, 0]], axis=1)
    positive_keys = jnp.stack(
        [texts[:, 0], texts[:, 1], texts[:, 1]], axis=1
    )  # whose row has the anchor; the text, twice
    if cfg.loss.own_negatives:  # eq. 10 as printed: dot products, and only the anchor's own negatives
        return info_nce(
            anchors,
            positives,
            temperature,
            own_nxKxD=negatives,
            own_mask_nxK=real[:, 2:],
            anchor_keys_nxG=anchor_keys,
            candidate_keys_mxG=positive_keys,
            cosine=False,
            block=cfg.block_size,
        )
    candidates = jnp.concatenate([positives, negatives.reshape(-1, D)])  # as the authors run it
    there = jnp.concatenate([real[:, 1], real[:, 2:].reshape(-1)])
    of_negatives = texts[:, 2:].reshape(-1)
    keys = jnp.stack([jnp.full_like(of_negatives, -1), of_negatives, of_negatives], axis=1)
    return info_nce(
        anchors,
        candidates,
        temperature,
        candidate_mask_m=there,
        anchor_keys_nxG=anchor_keys,
        candidate_keys_mxG=jnp.concatenate([positive_keys, keys]),
        block=cfg.block_size,
    )


def score_loss(cfg: ConfigDict, frozen: Tree, out: Array, batch: dict[str, Array]) -> Array:
    """How far the student's similarities to a row's passages, those of its InfoNCE, are from the scores over loss.scores_temperature.

    Args:
      frozen: temperature and scores_temperature, scalars.
      out: the student's vectors [n, K+2, d']: anchor, positive, negatives.
      batch: real bool [n, K+2]; scores float32 [n, K+1], a reranker's of the positive and the negatives.

    Returns: scalar, float32.
    """
    student_nxC = listed_similarities(out[:, 0], out[:, 1:], frozen["temperature"], cosine=not cfg.loss.own_negatives)
    return SCORE_LOSSES[cfg.loss.scores](
        student_nxC, batch["scores"] / frozen["scores_temperature"], batch["real"][:, 1:]
    )


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Of a run whose last stage this is, for its first one: raises UserError for keys that do not fit the start."""
    config = check_student(cfg, start)
    if cfg.triplets and cfg.output_dim:
        _check_projection(cfg, POOLERS[start.pooling].width(config.hidden_size))


def _check_projection(cfg: ConfigDict, width: int) -> None:
    if not 0 < cfg.output_dim <= width:
        raise UserError(f"--config.output_dim={cfg.output_dim} must lie in 1..{width}, the student's own width")


def with_projection(cfg: ConfigDict, student: Encoder, context: Start) -> Encoder:
    """The student with W_proj [D, output_dim] (eq. 11) at its start: its own vectors' principal axes, or random."""
    D, d = student.dim, cfg.output_dim
    _check_projection(cfg, D)
    rng = np.random.default_rng([cfg.seed, 3])
    kernel = rng.normal(0, D**-0.5, (D, d))
    if cfg.projection_start == "pca":
        tokens = context.tokens
        rows = sample_rows(rng, len(tokens), STUDENT_PCA_TEXTS)
        x_NxD = student.encode_ids(tokens.lists(rows))
        # About zero, not about the mean: cosines are of the vectors themselves.
        kernel = np.linalg.svd(x_NxD, full_matrices=False)[2][:d].T
        if kernel.shape[1] < d:
            raise UserError(f"{len(rows)} texts are too few for the PCA start of --config.output_dim={d}; use random")
    return projected(student, kernel)
