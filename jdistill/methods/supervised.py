"""Supervised contrastive training without a teacher: stage 2 alone, the baseline that distillation must beat."""

from __future__ import annotations

import dataclasses

from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.feeds.stage import Stage, Start
from jdistill.methods import finetune
from jdistill.students.transformer import make_student
from jdistill.train.method import Method


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Fine-tuning alone. Raises UserError where cfg.triplets names no data, and for a loss that wants a teacher's vectors."""
    if cfg.loss.align:
        raise UserError(
            "--config.loss.align: supervised training has no teacher whose space the student could live in; choose ibkd, mse or crd"
        )
    tuned = finetune.stages(cfg)
    if not tuned:
        raise UserError("--config.triplets is empty: supervised training needs triplets")
    return tuple(dataclasses.replace(stage, build=build, fits=finetune.fits) for stage in tuned)


def build(cfg: ConfigDict, context: Start) -> Method:
    """The fine-tuning stage on a student that no teacher has taught."""
    student = make_student(cfg, context.encoder, context.tokens)
    return finetune.build(cfg, dataclasses.replace(context, encoder=student))
