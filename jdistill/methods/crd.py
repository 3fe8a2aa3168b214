"""CRD: Contrastive Representation Distillation (Tian et al., ICLR 2020), a baseline of IBKD's tables.

A critic tells whether a student's and a teacher's vector are of the same text (its eq. 17 and 18). Negatives come from a
buffer. Tian's holds features of earlier steps; ours is the cache, whose teacher vectors are exact, drawn anew each step.
For teacher anchors the negatives are the students of the batch: students of earlier steps are stale and not kept.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses.embedding import HIGHEST, over_row_blocks, unit
from jdistill.methods import finetune
from jdistill.students.aligned import check_aligned, distance_of_units, in_teachers_space, with_W
from jdistill.students.transformer import make_student, representer
from jdistill.train.method import Method, scalars


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Raises UserError for a temperature that is not positive, an empty buffer, and a batch of one."""
    scalars(cfg.loss, "temperature")
    check_aligned(cfg)
    if cfg.loss.buffer_per_text < 1:
        raise UserError("--config.loss.buffer_per_text must be positive: CRD's negatives come from the buffer")
    if cfg.batch_size < 2:
        raise UserError("--config.batch_size=1: CRD contrasts a text with others of its batch, so it needs at least 2")
    aligned = bool(cfg.loss.align)
    distil = Stage("distil", Texts(cfg.loss.buffer_per_text), cfg, build, fits=finetune.fits, aligned=aligned)
    return (distil, *finetune.stages(cfg))


def build(cfg: ConfigDict, context: Start) -> Method:
    """Both sides are projected to cfg.loss.critic_dim and unit length; the projections are dropped at export."""
    student = make_student(cfg, context.encoder, context.tokens)
    rng = np.random.default_rng([cfg.seed, 2])

    def projection(width: int) -> np.ndarray:
        return rng.normal(0, width**-0.5, (width, cfg.loss.critic_dim)).astype(np.float32)

    shared = projection(context.teacher_width)  # where both start in one space, one start for both
    W_s = shared if student.dim == context.teacher_width else projection(student.dim)
    params: Tree = {"student": student.weights()}
    if cfg.loss.align:
        student, params = with_W(cfg, student, context.teacher_width)
    params |= {"critic": {"student": W_s, "teacher": shared.copy()}}
    weights = ("temperature", *(["align"] if cfg.loss.align else []))

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        tau = frozen["temperature"]
        s_nxd = unit(reps["sentence"] @ params["critic"]["student"])
        t_nxd = unit(batch["teacher"] @ params["critic"]["teacher"])
        buffer_Nxd = unit(batch["others"].reshape(-1, batch["others"].shape[-1]) @ params["critic"]["teacher"])
        # A text's own vector, in the buffer or for a text that stands twice in a batch, is no negative of it.
        texts_n, others_N = batch["row"], batch["other_rows"].reshape(-1)
        by_student = _nce(tau, {"anchor": s_nxd, "pair": t_nxd, "text": texts_n}, buffer_Nxd, others_N, cfg.block_size)
        by_teacher = _nce(tau, {"anchor": t_nxd, "pair": s_nxd, "text": texts_n}, s_nxd, texts_n, cfg.block_size)
        loss = by_student + by_teacher
        metrics = {"student_anchors": by_student, "teacher_anchors": by_teacher}
        if cfg.loss.align:  # beyond the paper
            metrics["align"] = distance_of_units(in_teachers_space(params, reps), batch["teacher"])
            loss = loss + frozen["align"] * metrics["align"]
        return loss, {"loss": loss} | metrics

    return Method(params, student, scalars(cfg.loss, *weights), representer(student, cfg.dtype), objective)


def _nce(tau: Array, rows: dict[str, Array], negatives_Nxd: Array, texts_N: Array, block: int) -> Array:
    """-log h of the pair, minus log (1 - h) of each of its N negatives, mean over pairs; h = P / (P + N / M), eq. 18, 19.

    P is e^g over M times its mean over the step's negatives, which takes no gradient (Tian keeps the first step's); so the
    number M of texts cancels.

    Args:
      tau: temperature, by which g is divided.
      rows: "anchor" and "pair" [n, d], vectors of one length, and "text" [n], the numbers of their texts.
      negatives_Nxd: of every anchor, but those of its own text.
      texts_N: the numbers of their texts.
      block: rows of the [n, N] logits at a time (over_row_blocks).

    Returns: scalar.
    """

    def logits(rows: dict[str, Array]) -> tuple[Array, Array]:
        counts_bxN = rows["text"][:, None] != texts_N
        return jnp.dot(rows["anchor"], negatives_Nxd.T, precision=HIGHEST) / tau, counts_bxN

    def log_sum(rows: dict[str, Array]) -> tuple[Array, Array]:
        g_bxN, counts_bxN = logits(rows)
        return jax.nn.logsumexp(jnp.where(counts_bxN, g_bxN, -jnp.inf), axis=-1), counts_bxN.sum(-1)

    def losses(rows: dict[str, Array]) -> Array:
        g_bxN, counts_bxN = logits(rows)
        log_h_b = jax.nn.log_sigmoid((rows["anchor"] * rows["pair"]).sum(-1) / tau - rows["shift"])
        log_not_bxN = jax.nn.log_sigmoid(rows["shift"][:, None] - g_bxN)  # log (1 - h)
        return -(log_h_b + jnp.where(counts_bxN, log_not_bxN, 0.0).sum(-1))

    log_sum_n, count_n = over_row_blocks(log_sum, jax.lax.stop_gradient(rows), block)
    log_mean = jax.nn.logsumexp(log_sum_n) - jnp.log(jnp.maximum(count_n.sum(), 1))
    shift_n = jax.lax.stop_gradient(log_mean) + jnp.log(jnp.maximum(count_n, 1))
    return over_row_blocks(losses, rows | {"shift": shift_n}, block).mean()
