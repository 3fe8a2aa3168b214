"""The rows of config.pairs with the teacher's vectors of both sides: the data of a student that learns a task's own pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.batching.batches import TokenTable
from jdistill.data.text.pair_sources import COLUMN_OF_ROLE
from jdistill.data.text.records import cell_text, has_surplus, records_of
from jdistill.data.text.text_sources import text_sources
from jdistill.data.text.usable import usable
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.answers_ahead import AnswersAhead
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.dev_score import DEV_SETS
from jdistill.feeds.feed import Feed
from jdistill.feeds.roles import corpus_tokens
from jdistill.feeds.shared import Shared
from jdistill.feeds.texts import Vectors, held_out_origins
from jdistill.feeds.tokens import make_batches
from jdistill.train.dataset import Data

NOT_BESIDE = (
    "text",
    "text_pairs",
    "augment",
    "split_sentences",
    "max_texts",
    "topics",
)  # keys that bring, cut or sort texts


@dataclass(frozen=True)
class OwnPairs:
    """A query and its positive a row, of cfg.pairs."""

    dev_keys = (*DEV_SETS, "held_out")

    def reads_text(self, there_is: bool) -> bool:
        return True

    def read(self, shared: Shared) -> Feed:
        return OwnPairsFeed(shared, pair_rows(shared.cfg, shared.corpus))


@dataclass(frozen=True)
class OwnPairsFeed(Feed):
    """A row is a pair of the corpus' texts, the first read by the prompt for a query, the second by that for a document, where there are
    prompts. rows_Px2: which, int64; a text that is held out is in none."""

    rows_Px2: np.ndarray
    learns_from_teacher = True

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        shared = self.shared
        tokens, random = corpus_tokens(cfg, student, shared.corpus), shared.random_embeddings
        return tokens, pair_batches(
            cfg,
            shared.corpus,
            self.rows_Px2,
            tokens,
            student.config.pad_token_id,
            random if made_up else shared.embeddings.train,
            in_their_place=random,
            ask_for=None if made_up else shared.embeddings.ask_for,
        )

    def origins(self) -> dict[str, str]:
        return super().origins() | held_out_origins(self.shared.corpus)

    def own_texts(self, cfg: ConfigDict, student: Encoder) -> Sequence[tuple[Encoder, Sequence[str]]]:
        return ()


def check_own_pairs(cfg: ConfigDict) -> None:
    """Raises UserError for a config without pairs, with texts beside them, or with weights of their sources."""
    if not cfg.pairs:
        raise UserError(
            "--config.loss.target=own_pairs learns the cosines of the rows of --config.pairs, which is empty: name a file with the "
            "columns query and positive"
        )
    for key in NOT_BESIDE:
        if cfg[key]:
            raise UserError(
                f"--config.{key}={cfg[key]}: --config.loss.target=own_pairs reads the rows of --config.pairs alone; leave the key empty"
            )
    if any(source.weight != 1 for source in text_sources(cfg.pairs, "config.pairs")):
        raise UserError(f"--config.pairs={cfg.pairs}: --config.loss.target=own_pairs reads each row once; leave out *")


def pair_rows(cfg: ConfigDict, corpus: Corpus) -> np.ndarray:
    """The rows of corpus.train that each distinct pair of cfg.pairs has, int64 [P, 2]; a pair with a side that is held out, unusable or of
    an evaluation set is left out. Raises UserError where fewer than a batch are left."""
    row_of: dict[tuple[str, str], int] = {}
    for role, start, stop in corpus.role_rows():
        row_of |= {(role, text): start + i for i, text in enumerate(corpus.train[start:stop])}
    sides = tuple(COLUMN_OF_ROLE.items())
    pairs: dict[tuple[int, ...], None] = {}
    read, apart = 0, 0
    for source in text_sources(cfg.pairs, "config.pairs"):
        for _, record in records_of(source.path, source.key):
            read += 1
            if has_surplus(record):  # which the corpus has not read either
                apart += 1
                continue
            pair = tuple(row_of.get((role, usable(cell_text(record.get(column)))[0]), -1) for role, column in sides)
            if min(pair) >= 0:
                pairs[pair] = None
            else:
                apart += 1
    log.info(
        "pairs: %d to train on of the %d rows of %s; %d have a side that is held out, of an evaluation set or not usable, %d came before",
        len(pairs),
        read,
        cfg.pairs,
        apart,
        read - apart - len(pairs),
    )
    if len(pairs) < cfg.batch_size:
        raise UserError(
            f"--config.pairs={cfg.pairs}: {len(pairs)} distinct pairs, neither side held out, do not fill a batch of {cfg.batch_size}"
        )
    return np.array(list(pairs), np.int64)


def pair_batches(
    cfg: ConfigDict,
    corpus: Corpus,
    rows_Px2: np.ndarray,
    tokens: TokenTable,
    pad_id: int,
    embeddings: Vectors,
    in_their_place: Vectors,
    ask_for: Callable[[np.ndarray | None], None] | None = None,
) -> Data:
    """Batches of pairs.

    Args:
      corpus: the texts.
      rows_Px2: those of each pair, int64.
      tokens: of all texts.
      embeddings: rows int64 [n] -> the teacher's embeddings, float32 [n, D].
      in_their_place: as embeddings, which nobody is asked for.
      ask_for: has the teacher answer all texts (None), before they are read; None: they are answered.

    Returns: Data of {"ids": int32 [n, 2, L], "mask": bool [n, 2, L], "teacher": float32 [n, 2, D]}.
    """
    batches = make_batches(cfg, np.asarray(tokens.lengths)[rows_Px2].max(1))
    # All of them at the first look: each stands in a pair, and an epoch reads every pair.
    ahead = AnswersAhead(cfg, batches, ask_for, every_row=True) if ask_for else None

    def rows_of(vectors: Vectors, width: int, pairs: np.ndarray) -> dict[str, np.ndarray]:
        rows_nx2 = rows_Px2[pairs]
        ids, mask = tokens.padded(rows_nx2.ravel(), width, pad_id)
        tokens.release()
        arrays = {"ids": ids, "mask": mask, "teacher": vectors(rows_nx2.ravel())}
        return {name: x.reshape(len(pairs), 2, -1) for name, x in arrays.items()}

    def asked_rows(step: int, width: int, pairs: np.ndarray) -> dict[str, np.ndarray]:
        if ahead is not None:
            ahead.reach(step)
        return rows_of(embeddings, width, pairs)

    def unasked_rows(step: int, width: int, pairs: np.ndarray) -> dict[str, np.ndarray]:
        return rows_of(in_their_place, width, pairs)

    fingerprint = digest(corpus.fingerprint, rows_Px2)
    return Data(batches, asked_rows, fingerprint, "pairs", 2, made_up=unasked_rows, asked=len(tokens))
