"""The training text of a run: read, cleared of evaluation sentences, and split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.collections import query_texts
from jdistill.data.sets.sts import read_scored_pairs, sts_sentences
from jdistill.data.text.augment import text_variants
from jdistill.data.text.holdout import remove_evaluation_texts, split_held_out
from jdistill.data.text.sentences import split_sentences
from jdistill.data.text.sources import read_texts
from jdistill.teachers.embeddings import Teacher


@dataclass(frozen=True)
class Corpus:
    """The texts of a run. train, held_out: distinct texts. removed: how many were dropped because an evaluation set holds them."""

    train: list[str]
    held_out: list[str]
    removed: int

    @property
    def fingerprint(self) -> str:
        """A hash of the training texts and their order, 32 hexadecimal digits."""
        return digest(self.train)


def evaluation_texts(cfg: ConfigDict) -> Iterator[str]:
    """Every sentence of the configured evaluation sets: SentEval's STS test sets, BEIR queries, the dev pairs."""
    if cfg.senteval:
        yield from sts_sentences(Path(cfg.senteval))
    if cfg.beir:
        yield from query_texts(cfg.beir, "config.beir")
    if cfg.dev_pairs:
        left, right, _ = read_scored_pairs(Path(cfg.dev_pairs))
        yield from left
        yield from right


def read_corpus(cfg: ConfigDict, teacher: Teacher, evaluation: Sequence[str]) -> Corpus:
    """Reads cfg.text (or a vectors: teacher's own texts), removes evaluation sentences, holds out cfg.held_out texts."""
    if cfg.text:
        rows = read_texts(cfg.text, cfg.text_column, key="config.text")
        texts = rows.texts
        skipped = ", ".join(f"{count} {reason}" for reason, count in rows.skipped.items() if count)
        log.info("text: %d sentences from %s%s", len(texts), cfg.text, f"; skipped {skipped}" if skipped else "")
    elif teacher.texts is not None:
        texts = list(dict.fromkeys(teacher.texts))
        log.info("text: the %d texts of %s", len(texts), teacher.source)
    else:
        raise UserError("--config.text is empty: name a file, a folder, a datasets id or python-docs")
    if cfg.split_sentences:
        texts = split_sentences(texts)
        log.info("of which the sentences are %d", len(texts))
    texts, removed = remove_evaluation_texts(texts, evaluation)
    if cfg.senteval or cfg.beir or cfg.dev_pairs:
        log.info("removed %d texts that the evaluation sets hold", removed)
    # Held out first, so that a smaller budget is judged on the same held-out texts as a larger one.
    train, held_out = split_held_out(texts, min(cfg.held_out, len(texts) // 10), seed=0)
    train = train[: cfg.max_texts] if cfg.max_texts else train
    if cfg.augment:
        train += augmented_texts(cfg, train, [*held_out, *evaluation])
    return Corpus(train, held_out, removed)


def augmented_texts(cfg: ConfigDict, train: list[str], apart: list[str]) -> list[str]:
    """Variants of the training texts (data.text.augment) that equal none of those kept apart, held out or of an evaluation set."""
    further, _ = remove_evaluation_texts(text_variants(train, cfg.augment, cfg.text, cfg.text_column), apart)
    log.info("augmented: %d further texts by %s", len(further), cfg.augment)
    return further
