"""Labelled triplets: the data of supervised contrastive learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.batching.batches import TokenTable, check_rows
from jdistill.data.batching.layout import Layout
from jdistill.data.batching.order import sample_rows
from jdistill.data.sets.triplets import (
    Triplets,
    TripletTokens,
    passage_columns,
    read_triplets,
    remove_evaluation_rows,
    same_texts,
    score_columns,
)
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.dev_score import DEV_SETS
from jdistill.feeds.feed import Feed
from jdistill.feeds.roles import corpus_tokens
from jdistill.feeds.shared import Shared
from jdistill.feeds.tokens import make_batches, make_packed_batches, may_pack, readers, tokens_of
from jdistill.models.registry import architecture_of
from jdistill.train.dataset import Data


@dataclass(frozen=True)
class LabelledTriplets:
    """An anchor, a positive and negatives a row, of cfg.triplets. A run may have text beside them, to be judged on and searched in.

    Args:
      with_scores: whether the loss reads a reranker's scores of the passages.
      packs: whether the method reads packed triplets.
    """

    with_scores: bool = False
    packs: bool = False
    dev_keys = DEV_SETS

    def reads_text(self, there_is: bool) -> bool:
        return there_is

    def read(self, shared: Shared) -> Feed:
        triplets = training_triplets(shared, self.with_scores)
        if self.with_scores:
            check_scored(triplets, shared.cfg.triplets)
        return TripletFeed(shared, triplets, self.packs)


@dataclass(frozen=True)
class TripletFeed(Feed):
    """A row is an anchor, a positive and K negatives."""

    triplets: Triplets
    packs: bool = False

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        of_triplets, data = triplet_batches(cfg, self.triplets, student, self.packs)
        # What is fitted to the text, such as the projection's start, is to fit the corpus as well as the labelled rows.
        tokens = of_triplets.passages
        if self.shared.corpus.train:
            rows = sample_of(self.shared.corpus, len(tokens.lengths))
            tokens = tokens.joined(corpus_tokens(cfg, student, self.shared.corpus, rows))
        return tokens, data

    def index_texts(self) -> Sequence[str]:
        """The corpus, and of a run without text the triplets' passages."""
        return super().index_texts() or self._passages

    @cached_property
    def _passages(self) -> list[str]:
        return passage_columns(self.triplets, max(map(len, self.triplets.negatives)))[0]

    def own_texts(self, cfg: ConfigDict, student: Encoder) -> Sequence[tuple[Encoder, Sequence[str]]]:
        passages, _ = passage_columns(self.triplets, cfg.negatives or max(map(len, self.triplets.negatives)))
        query, document = readers(cfg, student)
        return (query, self.triplets.anchors), (document, passages)


def training_triplets(shared: Shared, with_scores: bool = False) -> Triplets:
    """Reads cfg.triplets, with their scores where a loss reads them, and removes rows that hold a sentence of an evaluation set. Raises
    UserError where fewer than a batch are left."""
    cfg = shared.cfg
    triplets = remove_evaluation_rows(read_triplets(cfg.triplets, with_scores=with_scores), shared.evaluation_texts)
    skipped = ", ".join(f"{count} {reason}" for reason, count in triplets.skipped.items())
    log.info("triplets: %d from %s%s", len(triplets), cfg.triplets, f"; skipped {skipped}" if skipped else "")
    if len(triplets) < cfg.finetune.batch_size:
        raise UserError(
            f"--config.triplets={cfg.triplets}: {len(triplets)} rows do not fill one batch of finetune.batch_size={cfg.finetune.batch_size}"
        )
    return triplets


def check_scored(triplets: Triplets, source: str) -> None:
    """Raises UserError for triplets whose scores are not there, or tell nothing of any row."""
    if not triplets.scores:
        raise UserError(
            f"--config.loss.scores imitates a reranker's scores, and --config.triplets={source} has no column scores: "
            "python -m jdistill.mine --score_by MODEL writes it; or leave --config.loss.scores empty"
        )
    if all(len(set(scores)) < 2 for scores in triplets.scores):
        raise UserError(
            f"--config.triplets={source}: no row has two passages with different scores, so that there is nothing to imitate"
        )


def sample_of(corpus: Corpus, count: int) -> np.ndarray:
    """At most so many rows of the training texts, int64, rising, the same for as many texts."""
    return np.sort(sample_rows(np.random.default_rng(0), len(corpus.train), count))


def triplet_batches(
    cfg: ConfigDict, triplets: Triplets, student: Encoder, packs: bool = False
) -> tuple[TripletTokens, Data]:
    """The tokens of the triplets by the student's prompts and lengths, and their batches.

    Returns: tokens, and Data of {"ids": int32 [n, K+2, L], "mask": bool [n, K+2, L], "real": bool [n, K+2], false where a row has
      fewer than K negatives, …} (data.sets.triplets); packed, where method, config and student allow it, the tokens are as
      data.batching.packing has them, and [groups, triplets of a group] takes the place of n.
    """
    most = max(map(len, triplets.negatives))
    if cfg.negatives > most:
        log.warning(
            "WARNING: --config.negatives=%d: no row of --config.triplets=%s has more than %d, and so many are used",
            cfg.negatives,
            cfg.triplets,
            most,
        )
    passages, columns = passage_columns(triplets, min(cfg.negatives or most, most))
    fewer = int((columns < 0).any(1).sum())
    if fewer:
        log.info(
            "%d of %d triplets have fewer than %d negatives; the gaps are masked",
            fewer,
            len(triplets),
            columns.shape[1] - 1,
        )
    query, passage = readers(cfg, student)
    tokens = TripletTokens(
        tokens_of(cfg, query, triplets.anchors),
        tokens_of(cfg, passage, passages),
        columns,
        same_texts(triplets.anchors, passages),
        score_columns(triplets, columns.shape[1] - 1) if cfg.loss.scores else None,
    )
    check_rows(anchors=len(tokens.anchors.lengths), columns=len(columns))
    check_rows(passages=len(tokens.passages.lengths), texts=len(passages))
    fingerprint = digest(columns, triplets.anchors, passages, *([] if tokens.scores is None else [tokens.scores]))

    pad_id, texts = student.config.pad_token_id, columns.shape[1] + 1

    def padded_rows(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        return tokens.padded(rows, width, pad_id)

    if not (packs and cfg.packed and architecture_of(student.config).packs and may_pack(cfg, texts)):
        return tokens, Data(make_batches(cfg, tokens.lengths), padded_rows, fingerprint, "triplets", texts)
    batches = make_packed_batches(cfg, np.maximum(tokens.text_lengths, 0).sum(1), parts=tokens.text_lengths)

    def packed_rows(step: int, layout: Layout, rows: np.ndarray) -> dict[str, np.ndarray]:
        return tokens.packed(rows.reshape(-1, cfg.batch_size // batches.count), layout, pad_id)

    return tokens, Data(batches, packed_rows, fingerprint, "triplets", texts)
