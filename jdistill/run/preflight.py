"""What can be known before the first step: that the index can be made, the vectors tell texts apart, and the disk has room."""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.stage_keys import key_of_stage
from jdistill.encoder.encoder import Encoder
from jdistill.evals.collapse import COLLAPSE_SAMPLE, check_tokens, check_vectors
from jdistill.evals.retrieval import check_kind_for_each
from jdistill.feeds.feed import Feed
from jdistill.feeds.shared import Shared
from jdistill.models.attention import CUDNN
from jdistill.retrieval.index_kinds import check_kind
from jdistill.teachers.embeddings import Teacher
from jdistill.train.dataset import check_divides
from jdistill.train.method import Method
from jdistill.train.optimizer import make_optimizer

OTHER_BYTES = 16 * 2**20  # bytes of logs, report and tokenizer


def check_answers(shared: Shared, feeds: Sequence[Feed]) -> None:
    """Looks at the teacher's answers to a few texts, all of which a run asks of it anyway. Raises UserError where they are all alike."""
    learnt = any(feed.learns_from_teacher for feed in feeds)
    if shared.corpus.train if learnt else shared.corpus.held_out:
        texts, vectors = shared.embeddings.first(COLLAPSE_SAMPLE, held_out=not learnt)
        check_teacher(shared.teacher, shared.start, texts, vectors)
        check_tokens(shared.start, shared.corpus.translations(COLLAPSE_SAMPLE), "the student, of the translations")


def check_batches(cfg: ConfigDict, stages: Mapping[str, ConfigDict]) -> None:
    """Refuses a stage's batch that the devices cannot share evenly, before a stage trains. stages: name -> its config. Raises UserError."""
    for name, of in stages.items():
        check_divides(of.batch_size, sharding.global_mesh().size, key_of_stage(cfg, name, "batch_size"))


def check_index(cfg: ConfigDict, width: int, texts: int) -> None:
    """Refuses a config.index that cannot be made of the texts that it will hold, or of the collections of config.beir, which are searched
    by one of its kind. Raises UserError."""
    if cfg.index_texts and not texts:
        raise UserError(
            f"--config.index_texts={cfg.index_texts}: this run reads no text that an index could hold; set it to 0"
        )
    rows = min(cfg.index_texts, texts)
    try:
        check_kind(cfg.index, cfg.index_effort, width, rows if rows else 2**31)
        if cfg.beir:
            check_kind_for_each(cfg.beir, cfg.index, cfg.index_effort, width)
    except UserError as error:
        raise UserError(f"--config.index={cfg.index} --config.index_effort={cfg.index_effort}: {error}") from None


def check_teacher(teacher: Teacher, student: Encoder, texts: Sequence[str], vectors: np.ndarray) -> None:
    """Looks at a teacher's answers to some of the texts, and at how much of them the vocabularies lack. Raises UserError where either says
    that nothing can be learnt."""
    if teacher.encoder is not None:
        check_tokens(teacher.encoder, texts, f"--config.teacher={teacher.source}")
    check_tokens(student, texts, "the student")
    check_vectors(vectors, f"--config.teacher={teacher.source}")


def checkpoint_bytes(cfg: ConfigDict, method: Method) -> int:
    """Of one checkpoint: the parameters and what the optimiser keeps of them, such as two moments, or their average."""
    kept = jax.eval_shape(make_optimizer(cfg, 1).init, method.params)
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves((method.params, kept)) if x.ndim)


def checkpoints_kept(cfg: ConfigDict, steps: int) -> int:
    """How many a stage of so many steps leaves: the newest and the best, of as many as it writes."""
    return min(cfg.keep_last + 1, math.ceil(steps / cfg.checkpoint_every))


def check_room(cfg: ConfigDict, method: Method, folder: Path, texts: int, steps: int, parts: Collection[str]) -> None:
    """Refuses a stage whose checkpoints, export and index would not fit on the disk, as the first process sees it, which goes on to write
    there; all call it.

    Args:
      cfg: the stage's.
      folder: of the stage.
      texts: of the run's index.
      steps: of the stage.
      parts: of export and index those that will be written.

    Raises: UserError with what is needed and free.
    """
    sharding.by_first_process(
        lambda: _check_room(cfg, method, folder, texts, steps, parts), "the check of the disk's room"
    )


def _check_room(cfg: ConfigDict, method: Method, folder: Path, texts: int, steps: int, parts: Collection[str]) -> None:
    each = checkpoint_bytes(cfg, method)
    standing = checkpoints_kept(cfg, steps) + 1  # one more than is kept, while the next is written
    checkpoints = each * standing
    student = 4 * method.student.num_params
    export = ("export" in parts) * student * (3 if cfg.onnx else 2)  # the graph of the check is taken away afterwards
    index = ("index" in parts) * 4 * method.student.dim * min(cfg.index_texts, texts)
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    needed = max(checkpoints - there, 0) + export + index + OTHER_BYTES
    free = free_bytes(folder)
    if free < needed:
        raise UserError(
            f"{folder} needs about {needed / 2**20:,.0f} MiB (checkpoints of {each / 2**20:,.0f} MiB, of which {standing} stand at "
            f"once{'; export' * bool(export)}{'; index' * bool(index)}) and {free / 2**20:,.0f} MiB are free; make room, or lower "
            f"--config.keep_last{' or --config.index_texts' * bool(index)}"
        )


def free_bytes(folder: Path) -> int:
    """Of the disk that a folder lies on, or will once it is made."""
    return shutil.disk_usage(next(place for place in (folder, *folder.absolute().parents) if place.exists())).free


def check_attention(cfg: ConfigDict) -> None:
    """Raises UserError for cuDNN's attention where there is no GPU, or in a type that it does not take."""
    if cfg.attention != CUDNN:
        return
    if sharding.platform() != "gpu":
        raise UserError(
            f"--config.attention={CUDNN} needs a GPU, and this machine's devices are {sharding.describe_devices()}"
        )
    if cfg.dtype == "float32":
        raise UserError(
            f"--config.attention={CUDNN} takes bfloat16 or float16, and --config.dtype is float32; set --config.dtype=bfloat16"
        )
