"""DistilFACE: contrastive learning on a distilled encoder (Lim et al., "Contrastive Learning in Distilled Models", 2022).

Each text is encoded twice with independent dropout; of the batch's second views each first view is to pick its own (their
section 3, the loss of unsupervised SimCSE). No teacher is needed; loss.distil adds one's vectors, which the paper leaves as
future work.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses import embedding
from jdistill.losses.embedding import HIGHEST, info_nce
from jdistill.models.token_batch import TOKEN_ARRAYS
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student, representer, to_teacher
from jdistill.train.method import Method, scalars


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Raises UserError for a temperature that is not positive, a negative weight or one without a teacher, a batch of one, and a
    student without dropout."""
    scalars(cfg.loss, "temperature")
    if cfg.loss.distil < 0:
        raise UserError(f"--config.loss.distil={cfg.loss.distil} must be 0 or above: it is a loss's weight")
    if cfg.loss.distil and not cfg.teacher:
        raise UserError(
            f"--config.loss.distil={cfg.loss.distil} weighs the teacher's vectors: name one in --config.teacher"
        )
    if cfg.batch_size < 2:
        raise UserError("--config.batch_size=1: contrastive learning needs at least 2 texts in a batch")
    if not 0 < cfg.student.dropout < 1:
        raise UserError(
            f"--config.student.dropout={cfg.student.dropout}: the two views of a text differ by their dropout alone; 0.1 is usual"
        )
    # Without a teacher "agreement with the teacher" is agreement with the untuned start, which must not choose.
    teaches = bool(cfg.loss.distil)
    return (Stage("contrast", Texts(with_teacher=teaches), cfg, build, fits=fits),)


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for keys that do not fit the start."""
    check_student(cfg, start)


def build(cfg: ConfigDict, context: Start) -> Method:
    """L = contrast, plus loss.distil times the mean cosine distance of W s and the teacher's vector."""
    loss = cfg.loss
    student = make_student(cfg, context.encoder, context.tokens)
    params: Tree = {"student": student.weights()}
    if loss.distil:
        params["W"] = to_teacher(student.dim, context.teacher_width, np.random.default_rng([cfg.seed, 2]))
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
        contrast = info_nce(first_nxD, second_nxD, frozen["temperature"], block=cfg.block_size)
        metrics = {"info_nce": contrast}
        total = contrast
        if loss.distil:
            mine_nxT = embedding.unit(jnp.dot(first_nxD, params["W"], precision=HIGHEST))
            metrics["distil_loss"] = (1.0 - (mine_nxT * embedding.unit(batch["teacher"])).sum(-1)).mean()
            total = total + frozen["distil"] * metrics["distil_loss"]
        return total, metrics | {"loss": total}

    return Method(params, student, scalars(loss, "temperature", "distil"), represent, objective)
