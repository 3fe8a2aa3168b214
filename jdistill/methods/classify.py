"""Fine-tuning on a task: a classifier on the sentence vector, every parameter trained (BiLSTM-SRA, section 3.2).

With a teacher that was fine-tuned on the task first, its logits are learnt as well (Tang et al. 2019, "Distilling Task-Specific
Knowledge from BERT into Simple Neural Networks", eq. 3).
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.run_folder import export_of
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.task import LabelledTask, TaskFeed
from jdistill.losses.embedding import mse
from jdistill.models.classifier_head import classifier_logits, random_head
from jdistill.models.registry import architecture_of
from jdistill.students.bilstm import check_bilstm, check_no_pooler, make_bilstm, make_tokenizer
from jdistill.students.shape import check_pooler
from jdistill.students.transformer import of_rows, representer
from jdistill.train.method import Method, scalars

SCRATCH = "scratch"


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """The stage; its cfg.student are the keys of a student from scratch. Raises UserError for a task or weight that is not there."""
    if not cfg.task or not cfg.task_dir:
        raise UserError(
            "--config.task and --config.task_dir are needed: a task's name, and a SentEval folder or a datasets id"
        )
    if not 0 <= cfg.loss.hard <= 1:
        raise UserError(f"--config.loss.hard={cfg.loss.hard} must lie in 0..1")
    whole = ConfigDict(cfg.to_dict() | {"student": cfg.scratch.to_dict()})
    if cfg.student == SCRATCH:
        check_no_pooler(cfg, SCRATCH)
        own = partial(make_tokenizer, whole)
        return (Stage("task", LabelledTask(), whole, build_from_scratch, own, fits=fits_from_scratch),)
    return (Stage("task", LabelledTask(), whole, build, fits=fits, student=export_of(cfg.student)),)


def fits_from_scratch(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for keys that do not fit the encoder whose word pieces the student has, or its word vectors."""
    check_bilstm(cfg.student, start, "scratch")


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for a pooler that the encoder which is tuned cannot have."""
    check_pooler(start, start.config.num_layers)


def build_from_scratch(cfg: ConfigDict, context: Start[TaskFeed]) -> Method:
    """The same architecture and the same word vectors as a distilled student's at its start."""
    return build(
        cfg,
        dataclasses.replace(context, encoder=make_bilstm(cfg, context.encoder, context.tokens, context.teacher_width)),
    )


def build(cfg: ConfigDict, context: Start[TaskFeed]) -> Method:
    """The classifier reads what the encoder pools: its projections and normalisation are left behind."""
    config = context.encoder.config
    config = architecture_of(config).with_dropout(config, cfg.student.dropout)
    student = dataclasses.replace(context.encoder, config=config, dense=(), dense_activations=(), normalize=False)
    texts, rng = 2 if context.feed.task.pairs else 1, np.random.default_rng([cfg.seed, 4])
    head = random_head(student.dim, texts, cfg.head_size, len(context.feed.task.labels), rng)

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        found_nxC = classifier_logits(params["head"], reps["sentence"])
        known_n = (batch["label"] >= 0).astype(jnp.float32)  # augmented rows have no label
        count = jnp.maximum(known_n.sum(), 1.0)
        each_n = optax.softmax_cross_entropy_with_integer_labels(found_nxC, jnp.maximum(batch["label"], 0))
        right_n = (found_nxC.argmax(-1) == batch["label"]).astype(jnp.float32)
        metrics = {"cross_entropy": (each_n * known_n).sum() / count, "accuracy": (right_n * known_n).sum() / count}
        loss = metrics["cross_entropy"]
        if "logits" in batch:
            metrics["logit_mse"] = mse(found_nxC, batch["logits"])
            # L = a CE + (1 - a) |z_teacher - z|² / C, a row's own, C the classes: one without a label has the second part alone.
            loss = frozen["hard"] * (each_n * known_n).mean() + (1.0 - frozen["hard"]) * metrics["logit_mse"]
        return loss, metrics | {"loss": jnp.asarray(loss)}

    represent = of_rows(representer(student, cfg.dtype))
    return Method(
        {"student": student.weights(), "head": head}, student, scalars(cfg.loss, "hard"), represent, objective
    )
