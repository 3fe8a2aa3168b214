"""DistilFACE: contrastive learning on a distilled encoder (Lim et al., "Contrastive Learning in Distilled Models", 2022).

Each text is encoded twice with independent dropout; of the batch's second views each first view is to pick its own (their
section 3, the loss of unsupervised SimCSE). No teacher is needed; loss.distil adds one's vectors, which the paper leaves as
future work, and loss.align keeps the student in that teacher's space (students.aligned).
"""

from __future__ import annotations

import jax.numpy as jnp
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses import embedding
from jdistill.losses.embedding import info_nce
from jdistill.models.token_batch import TOKEN_ARRAYS
from jdistill.students.aligned import distance_of_units, in_teachers_space, with_W
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student, representer
from jdistill.train.method import Method, scalars

OF_TEACHER = ("distil", "align")  # weights of the losses that read a teacher's vectors


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Raises UserError for a temperature that is not positive, a negative weight or one without a teacher, a batch of one, and a
    student without dropout."""
    scalars(cfg.loss, "temperature")
    for name in OF_TEACHER:
        if cfg.loss[name] < 0:
            raise UserError(f"--config.loss.{name}={cfg.loss[name]} must be 0 or above: it is a loss's weight")
        if cfg.loss[name] and not cfg.teacher:
            raise UserError(
                f"--config.loss.{name}={cfg.loss[name]} weighs the teacher's vectors: name one in --config.teacher"
            )
    if cfg.batch_size < 2:
        raise UserError("--config.batch_size=1: contrastive learning needs at least 2 texts in a batch")
    if not 0 < cfg.student.dropout < 1:
        raise UserError(
            f"--config.student.dropout={cfg.student.dropout}: the two views of a text differ by their dropout alone; 0.1 is usual"
        )
    # Without a teacher "agreement with the teacher" is agreement with the untuned start, which must not choose.
    teaches = any(cfg.loss[name] for name in OF_TEACHER)
    return (Stage("contrast", Texts(with_teacher=teaches), cfg, build, fits=fits, aligned=bool(cfg.loss.align)),)


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for keys that do not fit the start."""
    check_student(cfg, start)


def build(cfg: ConfigDict, context: Start) -> Method:
    """L = contrast, plus loss.distil times the mean cosine distance of W s and the teacher's vector.

    Plus loss.align times the squared distance of unit vectors, for which W is kept: the views are contrasted as they are exported, behind it.
    """
    loss = cfg.loss
    student = make_student(cfg, context.encoder, context.tokens)
    params: Tree = {"student": student.weights()}
    if loss.distil or loss.align:
        student, params = with_W(cfg, student, context.teacher_width)
    weights = ("temperature", "distil", *(["align"] if loss.align else []))
    represent_texts = representer(student, cfg.dtype)

    def represent(params: Tree, frozen: Tree, batch: dict[str, Array], rng: Array | None) -> dict[str, Array]:
        # A text's two views stand side by side in one pass, each with a dropout of its own.
        twice = {name: jnp.repeat(x, 2, axis=0) for name, x in batch.items() if name in TOKEN_ARRAYS}
        views = represent_texts(params, frozen, twice, rng)["output"]
        # [2n, D] or, of packed texts, [2 groups, texts of a group, D]: the two views of a text last but one.
        return {"views": jnp.moveaxis(views.reshape(-1, 2, *views.shape[1:]), 1, -2)}

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        first_nxD, second_nxD = reps["views"][:, 0], reps["views"][:, 1]
        # l_i = -log exp(sim(h_i, h_i+) / tau) / sum_j exp(sim(h_i, h_j+) / tau)
        rows_nx1 = batch["row"][:, None] if "row" in batch else None  # of texts that stand in a batch twice
        contrast = info_nce(
            first_nxD,
            second_nxD,
            frozen["temperature"],
            anchor_keys_nxG=rows_nx1,
            candidate_keys_mxG=rows_nx1,
            block=cfg.block_size,
        )
        metrics = {"info_nce": contrast}
        total = contrast
        if loss.distil or loss.align:
            Ws_nxT = in_teachers_space(params, {"sentence": first_nxD, "output": first_nxD})
        if loss.distil:
            cosine_n = (embedding.unit(Ws_nxT) * embedding.unit(batch["teacher"])).sum(-1)
            metrics["distil_loss"] = (1.0 - cosine_n).mean()
            total = total + frozen["distil"] * metrics["distil_loss"]
        if loss.align:
            metrics["align"] = distance_of_units(Ws_nxT, batch["teacher"])
            total = total + frozen["align"] * metrics["align"]
        return total, metrics | {"loss": total}

    return Method(params, student, scalars(loss, *weights), represent, objective)
