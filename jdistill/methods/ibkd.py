"""IBKD: Text Representation Distillation via Information Bottleneck Principle (Zhang et al., EMNLP 2023).

Stage 1, on unlabelled text (eq. 8): InfoNCE between student and teacher, a lower bound of I(S, T), plus beta1 times
HSIC(X, S) in the place of I(X, S), X being the student's own embedding layer. Stage 2, on labelled triplets (eq. 9):
methods/finetune.py. CKD, the paper's ablation, is IBKD with both betas 0.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses.embedding import info_nce
from jdistill.methods import finetune, information
from jdistill.students.aligned import check_aligned, distance_of_units, in_teachers_space, with_W
from jdistill.students.transformer import make_student, representer
from jdistill.train.method import Method, scalars

SIMILARITIES = ("cosine", "bilinear")


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Raises UserError for names that are not listed, a temperature that is not positive, a batch too small for HSIC."""
    scalars(cfg.loss, "temperature")
    check_aligned(cfg)
    information.check_hsic(cfg, cfg.batch_size)
    betas = {
        "loss.beta": cfg.loss.beta,
        "finetune.loss.beta": cfg.finetune.get("loss", {}).get("beta", 0.0) if cfg.triplets else 0.0,
    }
    if cfg.method == "ckd" and (weighed := [f"--config.{key}={beta}" for key, beta in betas.items() if beta]):
        raise UserError(
            f"--config.method=ckd is IBKD without HSIC, which {' and '.join(weighed)} would weigh; --config configs/ibkd.py:ckd sets both to 0"
        )
    if cfg.loss.similarity not in SIMILARITIES:
        raise UserError(f"--config.loss.similarity={cfg.loss.similarity!r} is not one of {', '.join(SIMILARITIES)}")
    return (
        Stage(
            "distil",
            Texts(numbered=information.samples_rows(cfg)),
            cfg,
            build,
            fits=finetune.fits,
            aligned=bool(cfg.loss.align),
        ),
        *finetune.stages(cfg),
    )


def build(cfg: ConfigDict, context: Start) -> Method:
    """Stage 1."""
    loss = cfg.loss
    student, params = with_W(cfg, make_student(cfg, context.encoder, context.tokens), context.teacher_width)
    weights = ("temperature", "beta", *(["align"] if loss.align else []))

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        s_nxD, x_nxD = reps["sentence"], reps["input"]
        # Eq. 5: sim(s, t) = s W t / tau, or, as the authors run it, the cosine of W s and t over tau.
        Ws_nxT = in_teachers_space(params, reps)
        rows_nx1 = batch["row"][:, None] if "row" in batch else None  # of texts that stand in a batch twice
        nce = info_nce(
            Ws_nxT,
            batch["teacher"],
            frozen["temperature"],
            anchor_keys_nxG=rows_nx1,
            candidate_keys_mxG=rows_nx1,
            cosine=loss.similarity == "cosine",
            block=cfg.block_size,
        )
        metrics = {"info_nce": nce}
        total = nce
        if loss.beta:
            value, watch = information.term(cfg, x_nxD, s_nxD, numbers_n=batch.get("row"))  # eq. 6
            total = nce + frozen["beta"] * value  # eq. 8
            metrics |= watch
        if loss.align:  # beyond the paper
            metrics["align"] = distance_of_units(Ws_nxT, batch["teacher"])
            total = total + frozen["align"] * metrics["align"]
        return total, metrics | {"loss": total}

    return Method(params, student, scalars(loss, *weights), representer(student, cfg.dtype), objective)
