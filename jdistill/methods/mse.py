"""MSE: the plainest distillation of embeddings, a baseline of IBKD's tables. The projected student to the teacher."""

from __future__ import annotations

from ml_collections import ConfigDict

from jdistill.core.types import Array, Tree
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses import embedding
from jdistill.methods import finetune
from jdistill.students.aligned import check_aligned, distance_of_units, in_teachers_space, with_W
from jdistill.students.transformer import make_student, representer
from jdistill.train.method import Method, scalars


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Distillation, and fine-tuning where cfg.triplets names data. Raises UserError for an aligned student that would be tuned."""
    check_aligned(cfg)
    return (
        Stage("distil", Texts(), cfg, build, fits=finetune.fits, aligned=bool(cfg.loss.align)),
        *finetune.stages(cfg),
    )


def build(cfg: ConfigDict, context: Start) -> Method:
    """L = mean over elements of (W s - t)², W learnt and dropped at export; plus loss.align times the distance of unit vectors, for which
    W is kept."""
    student, params = with_W(cfg, make_student(cfg, context.encoder, context.tokens), context.teacher_width)
    weights = scalars(cfg.loss, "align") if cfg.loss.align else {}

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        Ws_nxT = in_teachers_space(params, reps)
        loss = embedding.mse(Ws_nxT, batch["teacher"])
        if not weights:
            return loss, {"loss": loss}
        align = distance_of_units(Ws_nxT, batch["teacher"])
        return loss + frozen["align"] * align, {"loss": loss + frozen["align"] * align, "mse": loss, "align": align}

    return Method(params, student, weights, representer(student, cfg.dtype), objective)
