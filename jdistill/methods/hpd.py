"""HPD: Compressing Sentence Representation via Homomorphic Projective Distillation (Zhao et al. 2022), a baseline.

The teacher's vectors are compressed to output_dim by PCA; the student's, by a projection that is learnt and exported
with it, follow them under MSE.
"""

from __future__ import annotations

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.data.batching.order import sample_rows
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses import embedding
from jdistill.methods import finetune
from jdistill.students.shape import check_student
from jdistill.students.transformer import make_student, projected, representer
from jdistill.train.method import Method

TEACHER_PCA_TEXTS = 20_000  # texts whose teacher vectors the PCA is fitted to


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Distillation to cfg.output_dim, and fine-tuning where cfg.triplets names data."""
    if cfg.loss.align:
        raise UserError(
            "--config.loss.align: HPD's students live on the teacher's principal axes, not in its space; choose ibkd, mse or crd"
        )
    tuned = cfg.copy_and_resolve_references()
    tuned.output_dim = 0  # the projection is there already
    return (Stage("distil", Texts(), cfg, build, fits=fits), *finetune.stages(tuned))


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for keys that do not fit the start or the teacher's width."""
    check_student(cfg, start)
    _check_width(cfg.output_dim, teacher_width)


def _check_width(d: int, T: int) -> None:
    if not 0 < d <= T:
        raise UserError(f"--config.output_dim={d} must lie in 1..{T}, the teacher's width: HPD compresses its vectors")


def build(cfg: ConfigDict, context: Start) -> Method:
    """L = mean over elements of (W s - P t)², P the teacher's principal axes [T, d]. Raises UserError for output_dim."""
    student = make_student(cfg, context.encoder, context.tokens)
    d, T = cfg.output_dim, context.teacher_width
    _check_width(d, T)
    rng = np.random.default_rng([cfg.seed, 2])
    rows = np.sort(sample_rows(rng, len(context.tokens), TEACHER_PCA_TEXTS))
    t_NxT = context.embeddings(rows).astype(np.float64)
    # About zero, not about the mean: the student has no bias to put a mean back, and cosines are of the vectors.
    axes_dxT = np.linalg.svd(t_NxT.T @ t_NxT)[2][:d]
    # An axis' sign is arbitrary; fixed, a run that resumes on another machine keeps its target.
    axes_dxT *= np.sign(np.take_along_axis(axes_dxT, np.abs(axes_dxT).argmax(1)[:, None], axis=1))
    D = student.dim
    kernel = axes_dxT.T if D == T else rng.normal(0, D**-0.5, (D, d))
    student = projected(student, kernel)
    frozen = {"axes": np.ascontiguousarray(axes_dxT.T, np.float32)}

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        loss = embedding.mse(reps["output"], batch["teacher"] @ frozen["axes"])
        return loss, {"loss": loss}

    return Method({"student": student.weights()}, student, frozen, representer(student, cfg.dtype), objective)
