"""BiLSTM-SRA: Towards Non-task-specific Distillation of BERT via Sentence Representation Approximation (Wu et al., AACL 2020).

A bidirectional LSTM learns to give a text the teacher's vector, up to its length; no labels, no task. What it learns is then
fine-tuned as BERT is.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.own_pairs import OwnPairs, OwnPairsFeed, check_own_pairs
from jdistill.feeds.stage import Stage, Start
from jdistill.feeds.texts import Texts
from jdistill.losses.embedding import mse, pair_cosines, unit
from jdistill.students.bilstm import check_bilstm, check_no_pooler, make_bilstm, make_tokenizer
from jdistill.students.transformer import of_rows, representer
from jdistill.train.method import Method

OVER_TIME = ("max", "final")
LOSS_TARGETS = ("vectors", "pairs", "own_pairs")


def stages(cfg: ConfigDict) -> tuple[Stage, ...]:
    """Raises UserError for a pooling over time or a target that is not listed, for a pooler beside it, for pairs of a batch of one, and as
    check_own_pairs does."""
    if cfg.student.over_time not in OVER_TIME:
        raise UserError(f"--config.student.over_time={cfg.student.over_time!r} is not one of {', '.join(OVER_TIME)}")
    if cfg.loss.target not in LOSS_TARGETS:
        raise UserError(f"--config.loss.target={cfg.loss.target!r} is not one of {', '.join(LOSS_TARGETS)}")
    if cfg.loss.target == "pairs" and cfg.batch_size < 2:
        raise UserError("--config.batch_size=1: cosines of a batch's pairs need at least 2 texts in it")
    check_no_pooler(cfg, "student")
    tokenizer, aligned = partial(make_tokenizer, cfg), cfg.loss.target == "vectors"
    if cfg.loss.target == "own_pairs":
        check_own_pairs(cfg)
        return (Stage("distil", OwnPairs(), cfg, build_of_pairs, tokenizer=tokenizer, fits=fits, aligned=aligned),)
    return (Stage("distil", Texts(packs=False), cfg, build, tokenizer=tokenizer, fits=fits, aligned=aligned),)


def fits(cfg: ConfigDict, start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises UserError for keys that do not fit the start, or the word vectors that take its place."""
    check_bilstm(cfg.student, start, "student")


def build(cfg: ConfigDict, context: Start) -> Method:
    """Binds the student to the teacher's width."""
    student = make_bilstm(cfg, context.encoder, context.tokens, context.teacher_width)

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        # Eq. 1: L = (1 - T_x S_x / |T_x| |S_x|) / 2, S_x = tanh(W H).
        cosine_n = (unit(batch["teacher"]) * unit(reps["output"])).sum(-1)
        # Beside section 5.5: the cosines of all pairs of the batch, and nothing else.
        rival = cfg.loss.target == "pairs"
        pairs = (pair_cosines(reps["output"]), pair_cosines(batch["teacher"]))
        loss = mse(*pairs) if rival else 0.5 * (1.0 - cosine_n).mean()
        return loss, {"loss": loss, "cosine": jnp.mean(cosine_n)}

    return Method({"student": student.weights()}, student, {}, representer(student, cfg.dtype), objective)


def build_of_pairs(cfg: ConfigDict, context: Start[OwnPairsFeed]) -> Method:
    """Section 5.5's rival, BiLSTM-KD: the teacher's cosine of each of a task's own pairs, and nothing else."""
    student = make_bilstm(cfg, context.encoder, context.tokens, context.teacher_width)

    def objective(
        params: Tree, frozen: Tree, reps: dict[str, Array], batch: dict[str, Array]
    ) -> tuple[Array, dict[str, Array]]:
        student_n, teacher_n = (
            (unit(x_nx2xD[:, 0]) * unit(x_nx2xD[:, 1])).sum(-1) for x_nx2xD in (reps["output"], batch["teacher"])
        )
        loss = mse(student_n, teacher_n)
        return loss, {"loss": loss, "cosine": student_n.mean(), "teacher_cosine": teacher_n.mean()}

    return Method({"student": student.weights()}, student, {}, of_rows(representer(student, cfg.dtype)), objective)
