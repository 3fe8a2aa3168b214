"""A labelled task: one or two texts a row, labels, and a fine-tuned teacher's logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.core.run_folder import export_of
from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable, check_rows
from jdistill.data.sets.task_augment import task_variants
from jdistill.data.sets.tasks import Split, Task, read_task
from jdistill.encoder.classifier import Classifier, load_classifier, save_head
from jdistill.encoder.encoder import Encoder
from jdistill.evals.task import task_results, task_scores
from jdistill.feeds.feed import Feed
from jdistill.feeds.shared import Shared
from jdistill.feeds.tokens import cache_folder, make_batches, tokens_of
from jdistill.teachers.cache import AnswerCache, in_one_piece
from jdistill.teachers.fill import ask
from jdistill.teachers.pair_keys import pair_keys, pairs_of_keys
from jdistill.train.dataset import Data
from jdistill.train.method import Method
from jdistill.train.origins import OF_DEV_SETS

NO_LABEL = -1  # the label of a row that has none


@dataclass(frozen=True)
class LabelledTask:
    """cfg.task of cfg.task_dir. It needs no text."""

    dev_keys = ("task",)  # whose dev split it is

    def reads_text(self, there_is: bool) -> bool:
        return False

    def read(self, shared: Shared) -> Feed:
        return TaskFeed(shared, *read_rows(shared.cfg))


@dataclass(frozen=True)
class TaskFeed(Feed):
    """A row is a text or a pair with its label.

    Args:
      rows: the training rows, and after them augmented ones, whose label is NO_LABEL.
      teacher: a classifier that was fine-tuned on the task, whose logits the rows get; None without one.
    """

    task: Task
    rows: Split
    teacher: Classifier | None = None

    def origins(self) -> dict[str, str]:
        dev = self.task.dev
        of_teacher = {"the fine-tuned teacher": self.teacher.fingerprint()} if self.teacher else {}
        return of_teacher | {OF_DEV_SETS: digest(list(dev.texts), list(dev.others or []), np.asarray(dev.labels))}

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        logits = None
        if self.teacher is not None and made_up:
            logits = np.zeros((len(self.rows), len(self.task.labels)), np.float32)
        elif self.teacher is not None:
            logits = teacher_logits(self.teacher, self.rows, cache_folder(cfg))
        return task_batches(cfg, self.rows, logits, student)

    def dev_score(self, cfg: ConfigDict, method: Method) -> Callable[[Tree], dict[str, float]]:
        """The metrics of the classifier on the dev split, and their mean."""

        def score(params: Tree) -> dict[str, float]:
            metrics = task_scores(self.task, method.trained(params), params["head"], self.task.dev)
            return metrics | {"score": float(np.mean(list(metrics.values())))}

        return score

    def save(self, cfg: ConfigDict, student: Encoder, params: Tree, folder: Path) -> dict[str, float]:
        save_head(Classifier(student, params["head"], self.task.labels, self.task.pairs), folder)
        return {}

    def results(self, cfg: ConfigDict, student: Encoder, params: Tree) -> dict[str, Any]:
        return {"task": task_results(self.task, student, params["head"])}


def read_rows(cfg: ConfigDict) -> tuple[Task, Split, Classifier | None]:
    """cfg.task from cfg.task_dir, its training rows, and the classifier cfg.kd, None without one (TaskFeed)."""
    task = read_task(cfg.task, cfg.task_dir, cfg.split_seed, cfg.label_fraction)
    if not cfg.kd:
        if cfg.augment:
            raise UserError(
                f"--config.augment={cfg.augment}: variants have no label, and --config.kd names no teacher to answer them"
            )
        return task, task.train, None
    teacher = load_classifier(export_of(cfg.kd), key="config.kd")
    if teacher.pairs != task.pairs:
        kinds = {True: "pairs", False: "single sentences"}
        raise UserError(
            f"--config.kd={cfg.kd} reads {kinds[teacher.pairs]}, and the task {task.name} is of {kinds[task.pairs]}"
        )
    if teacher.labels != task.labels:
        raise UserError(
            f"--config.kd={cfg.kd} tells {teacher.labels} apart, and the task {task.name} has {task.labels}"
        )
    rows = augmented_rows(task.train, cfg) if cfg.augment else task.train
    return task, rows, teacher


def augmented_rows(train: Split, cfg: ConfigDict) -> Split:
    """The rows, and after them their variants without a label (cfg.augment ts)."""
    if cfg.augment != "ts":
        raise UserError(f"--config.augment={cfg.augment}: of a task, ts or empty")
    variants = task_variants(train.texts, train.others, cfg.seed)
    log.info("%d training rows and %d variants of them", len(train), len(variants))
    others = None if train.others is None else [*train.others, *(other or "" for _, other in variants)]
    labels = np.concatenate([train.labels, np.full(len(variants), NO_LABEL, np.int32)])
    return Split([*train.texts, *(text for text, _ in variants)], others, labels)


def teacher_logits(teacher: Classifier, split: Split, folder: Path) -> np.ndarray:
    """float32 [N, C], from the cache where it has them."""
    cache = AnswerCache(
        folder / "logits" / teacher.fingerprint(), len(teacher.labels), about={"labels": list(teacher.labels)},
        writer=sharding.process_index(),
    )  # fmt: skip
    keys = split.texts if split.others is None else pair_keys(split.texts, split.others)

    def answer(asked: list[str]) -> np.ndarray:
        return teacher.logits(*pairs_of_keys(asked)) if teacher.pairs else teacher.logits(asked)

    return ask(cache, keys, in_one_piece(answer), "the fine-tuned teacher's logits").read()


def task_batches(cfg: ConfigDict, train: Split, logits: np.ndarray | None, student: Encoder) -> tuple[TokenTable, Data]:
    """Batches of a labelled task.

    Args:
      train: the rows, augmented ones with the label NO_LABEL.
      logits: of the rows, by a teacher, float32 [N, C]; None without one.

    Returns: the first texts' tokens, and Data of {"ids": int32 [n, T, L], "mask": bool [n, T, L], "label": int32 [n]}, and, with a teacher,
      "logits" float32 [n, C].
    """
    tables = [tokens_of(cfg, student, side) for side in (train.texts, train.others) if side is not None]
    check_rows(labels=len(train.labels), **{f"side_{i}": len(table.lengths) for i, table in enumerate(tables)})
    check_rows(labels=len(train.labels), logits=len(train.labels if logits is None else logits))
    lengths = np.max([table.lengths for table in tables], axis=0)
    fingerprint = digest(train.labels, train.texts, train.others or [])

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        sides = [table.padded(rows, width, student.config.pad_token_id) for table in tables]
        batch = {
            "ids": np.stack([ids for ids, _ in sides], axis=1),
            "mask": np.stack([mask for _, mask in sides], axis=1),
            "label": train.labels[rows],
        }
        return batch if logits is None else batch | {"logits": logits[rows]}

    return tables[0], Data(make_batches(cfg, lengths), rows_of, fingerprint, "labelled rows", len(tables))
