"""The training text of a run: read, cleared of evaluation sentences, and split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.fetched import path_here
from jdistill.core.progress import log
from jdistill.data.sets.collections import query_texts
from jdistill.data.sets.sts import read_scored_pairs, sts_sentences
from jdistill.data.text.augment import text_variants
from jdistill.data.text.holdout import comparable
from jdistill.data.text.kept_split import split_kept
from jdistill.data.text.kept_texts import KeptTexts, keep_sentences, keep_source, keep_texts
from jdistill.data.text.stored_texts import StoredTexts
from jdistill.feeds.tokens import cache_folder
from jdistill.teachers.embeddings import Teacher


@dataclass(frozen=True)
class Corpus:
    """The texts of a run.

    Args:
      train: distinct texts; read from a source, they stay on disk, and a slice is a view.
      held_out: distinct texts.
      removed: how many were dropped because an evaluation set holds them.
    """

    train: Sequence[str]
    held_out: list[str]
    removed: int

    @property
    def fingerprint(self) -> str:
        """A hash of the training texts and their order, 32 hexadecimal digits."""
        kept = self.train.fingerprint if isinstance(self.train, StoredTexts) else None
        return kept or digest(self.train)


def evaluation_texts(cfg: ConfigDict) -> Iterator[str]:
    """Every sentence of the configured evaluation sets: SentEval's STS test sets, BEIR queries, the dev pairs and queries."""
    if cfg.senteval:
        yield from sts_sentences(path_here(cfg.senteval, "config.senteval"))
    if cfg.beir:
        yield from query_texts(cfg.beir, "config.beir")
    if cfg.dev_retrieval:
        yield from query_texts(cfg.dev_retrieval, "config.dev_retrieval")
    if cfg.dev_pairs:
        left, right, _ = read_scored_pairs(path_here(cfg.dev_pairs, "config.dev_pairs"))
        yield from left
        yield from right


def read_corpus(cfg: ConfigDict, teacher: Teacher, evaluation: Sequence[str]) -> Corpus:
    """Reads cfg.text (or a vectors: teacher's own texts), removes evaluation sentences, holds out cfg.held_out texts.

    Held out first, so that a smaller budget (cfg.max_texts) is judged on the same held-out texts as a larger one.
    """
    train: Sequence[str]
    if cfg.text:
        train, held_out, removed = _from_source(cfg, evaluation)
    elif teacher.texts is not None:
        train, held_out, removed = _from_teacher(cfg, teacher, evaluation)
    else:
        raise UserError("--config.text is empty: name a file, a folder, a datasets id or python-docs")
    if cfg.senteval or cfg.beir or cfg.dev_pairs or cfg.dev_retrieval:
        log.info("removed %d texts that the evaluation sets hold", removed)
    if cfg.augment:
        train = with_variants(cfg, train, [*held_out, *evaluation])
    return Corpus(train, held_out, removed)


def _from_source(cfg: ConfigDict, evaluation: Sequence[str]) -> tuple[Sequence[str], list[str], int]:
    """Training texts, held-out texts, and how many were removed, of cfg.text: kept as files, none of them in memory."""
    kept = keep_source(cfg.text, cfg.text_column, "config.text", cache_folder(cfg) / "texts")
    skipped = ", ".join(f"{count} {reason}" for reason, count in kept.skipped.counts.items() if count)
    log.info("text: %d sentences from %s%s", len(kept.texts), cfg.text, f"; skipped {skipped}" if skipped else "")
    return _parted(cfg, kept, evaluation)


def _from_teacher(cfg: ConfigDict, teacher: Teacher, evaluation: Sequence[str]) -> tuple[Sequence[str], list[str], int]:
    """The same of the texts that a teacher brings."""
    of, folder = teacher.fingerprint, cache_folder(cfg) / "texts"
    kept = keep_texts(teacher.texts or (), f"the texts of {teacher.source}", of, [of], folder)
    log.info("text: the %d texts of %s", len(kept.texts), teacher.source)
    return _parted(cfg, kept, evaluation)


def _parted(cfg: ConfigDict, kept: KeptTexts, evaluation: Sequence[str]) -> tuple[Sequence[str], list[str], int]:
    if cfg.split_sentences:
        kept = keep_sentences(kept)
        log.info("of which the sentences are %d", len(kept.texts))
    return split_kept(kept, evaluation, cfg.held_out, cfg.max_texts, seed=0)


def with_variants(cfg: ConfigDict, train: Sequence[str], apart: Sequence[str]) -> Sequence[str]:
    """The training texts, and after them their variants (data.text.augment) that equal no other text and none of those kept apart, held
    out or of an evaluation set."""
    forbidden = {comparable(text) for text in apart}
    variants = text_variants(train, cfg.augment, cfg.text, cfg.text_column)
    further = (text for text in variants if comparable(text) not in forbidden)
    name = f"texts and variants by {cfg.augment}"
    every = keep_texts(
        chain(train, further), name, Corpus(train, [], 0).fingerprint, None, cache_folder(cfg) / "texts"
    ).texts
    log.info("augmented: %d further texts by %s", len(every) - len(train), cfg.augment)
    return every
