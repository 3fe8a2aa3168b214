"""A stage of a run, and what a method is built from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.progress import log
from jdistill.core.stage_keys import own_keys
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.dev_score import DEV_SETS, dev_sets_digest
from jdistill.feeds.feed import Feed, Kind
from jdistill.feeds.texts import Texts
from jdistill.train.method import Method
from jdistill.train.origins import BASE, OF_DEV_SETS, READS_AS, STUDENT_VOCABULARY
from jdistill.train.sealed import state_digest

F = TypeVar("F")
# What is left of a dev set that chooses nothing.
OTHER_USE = {
    "dev_pairs": "the finished student alone is scored on its pairs",
    "dev_retrieval": "leave it empty, or give it as --config.beir, on which the finished student is judged",
}


@dataclass(frozen=True)
class Start(Generic[F]):
    """What a method is built from.

    Args:
      encoder: the student of the stage before, or in the first stage the encoder that the student starts as.
      is_teacher: whether it is the teacher itself, so that its layers may be distilled too.
      teacher_width: of the teacher's embeddings.
      tokens: the stage's text by the encoder's tokenizer (Feed.batches).
      embeddings: rows of the corpus int64 [n] -> the teacher's, float32 [n, teacher_width].
      feed: the stage's training data, of which some methods read more than batches.
    """

    encoder: Encoder
    is_teacher: bool
    teacher_width: int
    tokens: TokenTable
    embeddings: Callable[[np.ndarray], np.ndarray]
    feed: F


@dataclass(frozen=True)
class Stage:
    """One part of a run, in a folder of its own name: data, objective, optimiser.

    Args:
      data: the kind of its training data.
      cfg: the run's config with what the stage changes.
      build: (cfg, start) -> the method.
      tokenizer: start -> the student's own tokenizer, where it is not its start's.
      trains: "judge" of a stage that changes the judge's weights, while the student stays as it was.
      fits: (cfg, the run's start, is_teacher, teacher_width), the last two as in Start; raises UserError for keys that the start's
        shape does not allow.
      aligned: whether it leaves its student's vectors in the teacher's space, so that they can be put to the teacher's index.
      student: source of the encoder that the student starts as, of a first stage whose start is not cfg.start.
    """

    name: str
    data: Kind
    cfg: ConfigDict
    build: Callable[[ConfigDict, Start[Any]], Method]
    tokenizer: Callable[[Encoder], Any] | None = None
    trains: Literal["student", "judge"] = "student"
    fits: Callable[[ConfigDict, Encoder, bool, int], object] | None = None
    student: str = ""
    aligned: bool = False


def check_start(stages: tuple[Stage, ...], start: Encoder, is_teacher: bool, teacher_width: int) -> None:
    """Raises the UserError of the first stage that a run of this start could not build: before a text is read, a judge asked or the
    stage before trained."""
    for stage in stages:
        if stage.fits is not None:
            stage.fits(stage.cfg, start, is_teacher, teacher_width)


def tell_unread_sets(cfg: ConfigDict, stages: tuple[Stage, ...]) -> None:
    """Warns of text that no stage reads, of topics that none has batches of, and of a dev set of the config that is no part of any stage's
    dev score."""
    if cfg.topics and not any(isinstance(stage.data, Texts) for stage in stages):
        log.warning(
            "WARNING: --config.topics=%s is not read: batches of one topic are of unlabelled text alone", cfg.topics
        )
    for key in () if any(stage.data.reads_text(True) for stage in stages) else ("text", "pairs"):
        if cfg[key]:
            log.warning(
                "WARNING: --config.%s=%s is not read: --config.method=%s reads files of its own alone",
                key,
                cfg[key],
                cfg.method,
            )
    if len(stages) == 1 and (own := own_keys(cfg, name := stages[0].name)):
        told = ", ".join(f"{name}.{key}={value}" for key, value in own.items())
        log.info("the only stage goes by %s; the run's own keys of these names are not read", told)
    dev_keys = list(dict.fromkeys(key for stage in stages for key in stage.data.dev_keys))
    for key in (key for key in DEV_SETS if cfg[key] and key not in dev_keys):
        log.warning(
            "WARNING: --config.%s=%s chooses no checkpoint: the dev score of --config.method=%s is that of --config.%s; %s",
            key, cfg[key], cfg.method, " and --config.".join(dev_keys), OTHER_USE[key],
        )  # fmt: skip


def reading_digest(student: Encoder) -> str:
    """A hash of what decides a student's vectors beside its weights and the type of the computation."""
    of_prompts = sorted(student.prompts.items()), student.default_prompt, student.include_prompt
    after = student.pooling, student.dense_activations, student.normalize
    return digest(student.tokenizer_fingerprint(), repr((student.config, *of_prompts, student.max_length, *after)))


def origins_of(stage: Stage, feed: Feed, method: Method) -> dict[str, str]:
    """Of whatever decides what a stage's checkpoint means and is no part of it, a fingerprint by name."""
    student = method.student
    pieces = sorted(student.tokenizer.get_vocab().items(), key=lambda piece: piece[1])
    base = {BASE: state_digest(method.frozen["base"])} if method.merged else {}
    of_dev = dev_sets_digest(stage.cfg, stage.data.dev_keys)
    base |= {OF_DEV_SETS: of_dev} if of_dev else {}
    own = {STUDENT_VOCABULARY: digest([piece for piece, _ in pieces]), READS_AS: reading_digest(student)}
    return feed.origins() | own | base
