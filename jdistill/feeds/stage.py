"""What a method is: a handful of pure functions that the one training loop calls (DESIGN, contract 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from ml_collections import ConfigDict

from jdistill.data.batching.batches import TokenTable
from jdistill.data.sets.tasks import Task
from jdistill.encoder.encoder import Encoder
from jdistill.teachers.judge import Judge
from jdistill.train.method import Method


@dataclass(frozen=True)
class Start:
    """What a method is built from.

    encoder: the student of the stage before, or in the first stage the encoder that the student starts as. is_teacher:
    it is the teacher itself, so that its layers may be distilled too. teacher_width: of the teacher's vectors. tokens:
    the stage's text by the encoder's tokenizer; on triplets their passages, and after them as many texts of the corpus; on candidates a
    sample of the queries and passages.
    answers: rows of the training text -> the teacher's vectors float32 [len(rows), teacher_width]. task: of a stage on
    labelled data. judge: the language model that judges pairs, of a stage that has one.
    """

    encoder: Encoder
    is_teacher: bool
    teacher_width: int
    tokens: TokenTable
    answers: Callable[[np.ndarray], np.ndarray]
    task: Task | None = None
    judge: Judge | None = None


@dataclass(frozen=True)
class Stage:
    """One part of a run, in a folder of its own name: data, objective, optimiser.

    data "texts": a row is a text; batch has "ids" int32 [n, L], "mask" bool [n, L], "teacher" float32 [n, D], the
    teacher's cached answer. data "triplets": a row is an anchor, a positive and K negatives; "ids" int32 [n, K+2, L],
    "mask" bool [n, K+2, L], "real" bool [n, K+2], false where a row has fewer than K negatives. data "labelled": a row is a text or a pair with
    its label (jdistill.feeds.task). data "judgements": a row is a prompt of the judge with its label; data "candidates": a query with its
    positives and negatives and the judge's scores (jdistill.feeds.judged). trains: "student", or "judge", whose weights it changes while the
    student stays as it was. cfg: the run's config
    with what the stage changes. others: so many further teacher vectors a text, of other texts drawn anew each step, in
    batch["others"] float32 [n, others, D], with which text each row of the batch and each of them is in batch["row"] int32 [n] and
    batch["other_rows"] [n, others]; 0: none. teacher: whether the method learns from the teacher's answers; without, batch has
    no "teacher", and agreement with the teacher does not choose the best checkpoint. tokenizer: start -> the student's own
    tokenizer, where it is not its start's. fits: (cfg, the run's start, is_teacher, teacher_width), the last two as in Start; raises
    UserError for keys that the start's shape does not allow.
    """

    name: str
    data: Literal["texts", "triplets", "labelled", "judgements", "candidates"]
    cfg: ConfigDict
    build: Callable[[ConfigDict, Start], Method]
    others: int = 0
    teacher: bool = True
    tokenizer: Callable[[Encoder], Any] | None = None
    trains: Literal["student", "judge"] = "student"
    fits: Callable[[ConfigDict, Encoder, bool, int], object] | None = None


def check_start(stages: tuple[Stage, ...], start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises the UserError of the first stage that a run of this start could not build: before a text is read, a judge asked or the
    stage before trained."""
    for stage in stages:
        if stage.fits is not None:
            stage.fits(stage.cfg, start, is_teacher, teacher_width)
