"""The vocabulary of a run's student, cut to the pieces that its texts use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.feed import Feed
from jdistill.feeds.shared import Shared
from jdistill.feeds.tokens import tokens_of
from jdistill.students.vocabulary import check_same_tokens, cut_vocabulary, most_pieces, vocabulary_asked

COMPARED_TEXTS = 512  # of each kind of texts, whose tokens are held against those of the whole vocabulary


def with_cut_vocabulary(
    shared: Shared, feeds: Sequence[Feed], cfgs: Sequence[ConfigDict]
) -> tuple[Shared, tuple[Feed, ...]]:
    """What feeds share, and the feeds, with a start whose vocabulary is what the config asks for; as they are where it asks for none.

    It follows from the key and the texts alone, so that a run that resumes has the same.

    Args:
      cfgs: of the feeds' stages.

    Raises: UserError for texts that are none, and a start whose tokenizer cannot be cut so.
    """
    asked = vocabulary_asked(shared.cfg)
    if not asked:
        return shared, tuple(feeds)
    start, texts = shared.start, run_texts(shared, feeds, cfgs)
    tables = [(reader, of_role, tokens_of(shared.cfg, reader, of_role)) for reader, of_role in texts if len(of_role)]
    counts = sum(
        (table.counts(start.config.vocab_size) for _, _, table in tables),
        np.zeros(start.config.vocab_size, np.int64),
    )
    if not counts.any():
        raise UserError(
            f"--config.student.vocabulary={asked}: the run reads no text whose pieces could be kept; name one in --config.text"
        )
    cut, new_of = cut_vocabulary(start, counts, most_pieces(asked))
    for reader, of_role, _ in tables:
        some = list(of_role[:COMPARED_TEXTS])
        check_same_tokens(reader, replace(reader, tokenizer=cut.tokenizer), new_of, some)
    changed = replace(shared, start=cut, whole_vocabulary=start.config.vocab_size)
    return changed, tuple(replace(feed, shared=changed) for feed in feeds)


def run_texts(shared: Shared, feeds: Sequence[Feed], cfgs: Sequence[ConfigDict]) -> list[tuple[Encoder, Sequence[str]]]:
    """All texts that a run trains on, each with the start as it reads them: the corpus by its roles, and what feeds have beside it."""
    own = [part for feed, cfg in zip(feeds, cfgs, strict=True) for part in feed.own_texts(cfg, shared.start)]
    corpus = shared.corpus
    return [(shared.start.in_role(role), corpus.train[first:stop]) for role, first, stop in corpus.role_rows()] + own
