"""MSE: the plainest distillation of embeddings, a baseline of IBKD's tables. The projected student to the teacher."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.types import Array, Tree
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses import embedding
from jdistill.methods import finetune
from jdistill.students.transformer import make_student, representer, to_teacher
from jdistill.train.method import Method


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Distillation, and fine-tuning where cfg.triplets names data."""
    return (Stage("distil", Texts(), cfg, build, fits=finetune.fits), *finetune.stages(cfg))


def build(cfg: ConfigDict, context: Start) -> Method:
    """L = mean over elements of (W s - t)²; W is learnt and dropped at export."""
    student = make_student(cfg, context.encoder, context.tokens)
    W_DxT = to_teacher(student.dim, context.teacher_width, np.random.default_rng([cfg.seed, 2]))

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        Ws_nxT = jnp.dot(reps["sentence"].astype(jnp.float32), params["W"])
        loss = embedding.mse(Ws_nxT, batch["teacher"])
        return loss, {"loss": loss}

    return Method({"student": student.weights(), "W": W_DxT}, student, {}, representer(student, cfg.dtype), objective)
