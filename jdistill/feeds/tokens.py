"""How a student reads the texts of its training data: its prompts and lengths, its tokens, and their order in batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.cache_mirror import cache_root
from jdistill.core.errors import UserError
from jdistill.core.files import default_folder
from jdistill.core.progress import log
from jdistill.core.remote import is_url
from jdistill.data.batching.batches import Batches, TokenTable, choose_buckets
from jdistill.data.batching.kept_tokens import tokenize_once
from jdistill.data.batching.order import EpochRows
from jdistill.data.batching.packing import PackedBatches
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.tokenizing import tokenizing
from jdistill.train.dataset import check_divides

# A width costs a compilation of seconds, which fewer steps than this would not repay; but the first few always do.
STEPS_PER_WIDTH, FEWEST_WIDTHS = 50, 4
# Of fewer texts than this a group's rows are not filled.
USUAL_DEVICES, TEXTS_OF_A_GROUP = 8, 32
MOST_TEXTS = 256  # of a group, whose places are found one text after another


def tokens_of(cfg: ConfigDict, student: Encoder, texts: Sequence[str]) -> TokenTable:
    """The texts as the student reads them, tokenised once and kept."""
    fingerprint = repr((student.tokenizer_fingerprint(), student.max_length, student.default_prompt, student.prompts))
    with tokenizing(student, len(texts)) as how:
        return tokenize_once(texts, how, fingerprint, cache_folder(cfg) / "tokens")


def in_role(student: Encoder, role: str, limit: int) -> Encoder:
    """The encoder as it reads a role's texts: with that prompt, or with none where it has none for it.

    Args:
      role: "query" or "document".
      limit: tokens of a text, at most; 0: the encoder's own limit.
    """
    return replace(student.in_role(role), max_length=min(limit or student.max_length, student.max_length))


def readers(cfg: ConfigDict, student: Encoder) -> tuple[Encoder, Encoder]:
    """The encoder as it reads queries, and as it reads documents, by the lengths of a stage's config."""
    return in_role(student, "query", cfg.query_length), in_role(student, "document", cfg.document_length)


def tell_cut_lengths(cfg: ConfigDict, student: Encoder) -> None:
    """Warns of a role's length that is more than the student reads of any text."""
    for key in ("query_length", "document_length"):
        if cfg.get(key, 0) > student.max_length:
            log.warning(
                "WARNING: --config.%s=%d: the student reads %d tokens of a text; --config.max_length is the most, and its start's positions",
                key, cfg[key], student.max_length,
            )  # fmt: skip


def configured_prompts(cfg: ConfigDict) -> dict[str, str]:
    """The prompts that the config gives the student, by role."""
    return {role: text for role, text in (("query", cfg.query_prompt), ("document", cfg.document_prompt)) if text}


def make_batches(cfg: ConfigDict, lengths: np.ndarray, of_epoch: EpochRows | None = None) -> Batches:
    """Batches of a stage; a short run gets fewer widths than cfg.length_buckets allows.

    Args:
      lengths: int [N], of each row, in tokens.
      of_epoch: which rows an epoch has; None: each once.
    """
    rows = len(lengths) if of_epoch is None else of_epoch.count
    steps = cfg.max_steps or int(cfg.epochs * rows / cfg.batch_size)
    count = min(cfg.length_buckets, max(FEWEST_WIDTHS, steps // STEPS_PER_WIDTH))
    widths = choose_buckets(lengths, count, cfg.length_multiple)
    return Batches(lengths, cfg.batch_size, widths, cfg.seed, of_epoch=of_epoch)


def make_packed_batches(
    cfg: ConfigDict, lengths: np.ndarray, of_epoch: EpochRows | None = None, parts: np.ndarray | None = None
) -> PackedBatches:
    """Batches of a stage whose texts are packed.

    Args:
      lengths: int [N], of each text, in tokens.
      of_epoch: which texts an epoch has; None: each once.
      parts: as PackedBatches has them, of rows of several texts.
    """
    groups = number_of_groups(cfg, 1 if parts is None else parts.shape[1])
    return PackedBatches(lengths, cfg.batch_size, groups, cfg.seed, cfg.length_multiple, of_epoch, parts)


def may_pack(cfg: ConfigDict, texts: int = 1) -> bool:
    """Whether a stage that packs its texts is the same run on 1, 2, 4 and 8 devices: dropout's masks depend on the groups, of which there
    must then be as many on any, each large enough. Rows of several texts are in large groups on one device, or padding costs less, and
    what one device does all do.

    Args:
      texts: of a row.
    """
    if cfg.student.dropout:
        return _large_enough(cfg, _fewest_groups(cfg, USUAL_DEVICES, texts), texts)
    groups = _fewest_groups(cfg, 1, texts)
    if texts > 1:
        return _large_enough(cfg, groups, texts)
    # As many as a small batch or chunk holds; of a batch whose only divisors are near itself a group would hold hardly any.
    return (
        groups is not None and cfg.batch_size // groups >= min(TEXTS_OF_A_GROUP, cfg.chunk_size or cfg.batch_size) / 2
    )


def number_of_groups(cfg: ConfigDict, texts: int = 1) -> int:
    """Groups that a batch's rows of so many texts are packed in: at least one for each device in each chunk of cfg.chunk_size rows, and none is
    large. With dropout as many as 8 devices take, where each is then large enough. Raises UserError for rows that devices or chunks cannot
    share."""
    devices = sharding.global_mesh().size
    check_divides(cfg.batch_size, devices)
    usual = _fewest_groups(cfg, math.lcm(devices, USUAL_DEVICES), texts) if cfg.student.dropout else None
    groups = usual if usual and _large_enough(cfg, usual, texts) else _fewest_groups(cfg, devices, texts)
    if groups is None:
        raise UserError(
            f"--config.chunk_size={cfg.chunk_size}: a batch of {cfg.batch_size} packed texts in chunks of so many has none for each of "
            f"{devices} devices; raise it, or give --config.packed=False"
        )
    return groups


def _fewest_groups(cfg: ConfigDict, devices: int, texts: int) -> int | None:
    """The least multiple of `devices` that divides a batch into groups within a chunk and within MOST_TEXTS; None: there is none."""
    B = cfg.batch_size
    chunks = math.ceil(B / cfg.chunk_size) if cfg.chunk_size else 1
    least = max(devices * chunks, math.ceil(B / max(1, MOST_TEXTS // texts) / devices) * devices)
    return next((count for count in range(least, B + 1, devices) if B % count == 0), None)


def _large_enough(cfg: ConfigDict, groups: int | None, texts: int) -> bool:
    return groups is not None and cfg.batch_size // groups * texts >= TEXTS_OF_A_GROUP


def cache_folder(cfg: ConfigDict) -> Path:
    """Where answers, tokens and mined negatives are kept: cfg.cache_dir, of a URL its local mirror, or the user's cache folder.

    Raises: UserError for a URL where the run has several processes.
    """
    if is_url(cfg.cache_dir) and sharding.process_count() > 1:
        raise UserError(
            f"--config.cache_dir={cfg.cache_dir}: a run of several processes needs a folder that all of them share; name one on a shared "
            "file system"
        )
    return cache_root(cfg.cache_dir) if cfg.cache_dir else default_folder()
