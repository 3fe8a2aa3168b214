"""The training text of a run: read, cleared of evaluation sentences, and split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.batching.weights import SourceWeights
from jdistill.data.text.augment import check_augment
from jdistill.data.text.kept_split import split_kept, split_together
from jdistill.data.text.kept_texts import KeptTexts, keep_sentences, keep_source, keep_texts
from jdistill.data.text.pair_sources import check_pairs, pair_sources
from jdistill.data.text.stored_texts import JoinedTexts, fingerprint_of, put_together
from jdistill.data.text.text_pairs import ParallelPair
from jdistill.data.text.text_sources import TextSource, text_sources
from jdistill.feeds.tokens import cache_folder
from jdistill.feeds.variants import sources_with_variants, with_variants
from jdistill.teachers.embeddings import Teacher


@dataclass(frozen=True)
class SourceRows:
    """A source's share of a corpus, whose sources follow one another.

    Args:
      source: with role and weight.
      train: how many of the training texts are its own.
      held_out: how many of the held-out texts.
      translated: whether they are translations, for which the teacher is asked of others.
      variants: how many of the training texts, the last of them, cfg.augment made.
    """

    source: TextSource
    train: int
    held_out: int
    translated: bool = False
    variants: int = 0


@dataclass(frozen=True)
class Corpus:
    """The texts of a run.

    Args:
      train: texts, distinct in each role; read from a source, they stay on disk, and a slice is a view.
      held_out: texts, distinct in each role.
      removed: how many were dropped because an evaluation set holds them.
      sources: whose texts they are, one after another; empty where there is one source without role and weight.
      asked: what the teacher is asked in the place of each training text, as many; None: the text itself.
      held_out_pairs: pairs of parallel text that nothing is trained on, each with its role.
      variants: where there are no sources, how many of the training texts, the last of them, cfg.augment made.
    """

    train: Sequence[str]
    held_out: list[str]
    removed: int
    sources: tuple[SourceRows, ...] = ()
    asked: Sequence[str] | None = None
    held_out_pairs: tuple[tuple[ParallelPair, str], ...] = ()
    variants: int = 0

    @property
    def asked_texts(self) -> Sequence[str]:
        """What the teacher is asked for each training text."""
        return self.train if self.asked is None else self.asked

    @property
    def numbered_by(self) -> Sequence[str] | None:
        """Texts, as many as there are to train on, by which those are told that stand in a corpus twice: translations of one text, and a text
        in two roles; None: each stands there once."""
        if self.asked is None and len({of.source.role for of in self.sources}) > 1:
            return self.train
        return self.asked

    def translations(self, count: int) -> list[str]:
        """The first training texts of all sources that are translations, so many at most."""
        ends = np.cumsum([of.train for of in self.sources]).tolist()
        texts: list[str] = []
        for of, end in zip(self.sources, ends, strict=True):
            if of.translated:
                texts += self.train[end - of.train : min(end, end - of.train + count - len(texts))]
        return texts

    @property
    def fingerprint(self) -> str:
        """A hash of the training texts, their order, roles and weights, 32 hexadecimal digits."""
        of_texts = fingerprint_of(self.train)
        return (
            digest(of_texts, [f"{of.source.role} {of.source.weight} {of.train}" for of in self.sources])
            if self.sources
            else of_texts
        )

    def role_rows(self, held_out: bool = False) -> list[tuple[str, int, int]]:
        """(role, first row, row after the last) of each source's training or held-out texts."""
        if not self.sources:
            return [("", 0, len(self.held_out if held_out else self.train))]
        counts = [of.held_out if held_out else of.train for of in self.sources]
        ends = np.cumsum(counts).tolist()
        return [(of.source.role, end - count, end) for of, count, end in zip(self.sources, counts, ends, strict=True)]

    def weights(self, seed: int) -> SourceWeights | None:
        """Which rows an epoch has; None: each once. seed: of the draws."""
        weights = tuple(of.source.weight for of in self.sources)
        sizes = tuple(of.train for of in self.sources)
        return SourceWeights(sizes, weights, seed) if any(weight != 1 for weight in weights) else None

    def indexed(self, by_teacher: bool = False) -> Sequence[str]:
        """The texts of a search index: all but variants, which nobody wrote, and, where there are any others, queries. by_teacher: and but
        translations, of which the teacher is never asked."""
        variants = [of.variants for of in self.sources] or [self.variants]
        left_out = [by_teacher and of.translated for of in self.sources] or [False]
        parts: list[tuple[str, Sequence[str]]] = [
            (role, self.train[first : stop - made])
            for (role, first, stop), made, out in zip(self.role_rows(), variants, left_out, strict=True)
            if not out
        ]
        of_held_out = zip(self.role_rows(held_out=True), left_out, strict=True)
        parts += [(role, self.held_out[first:stop]) for (role, first, stop), out in of_held_out if not out]
        chosen = (
            [texts for role, texts in parts if role != "query"]
            if any(r != "query" for r, _ in parts)
            else [texts for _, texts in parts]
        )
        return reduce(put_together, chosen)


def named_sources(cfg: ConfigDict) -> tuple[TextSource, ...]:
    """The sources of a run's text: those of cfg.text, then the queries and the positives of cfg.pairs. Raises UserError for what names none."""
    return text_sources(cfg.text, role=cfg.text_role) + pair_sources(cfg.pairs)


def read_corpus(cfg: ConfigDict, teacher: Teacher, evaluation: Sequence[str]) -> Corpus:
    """Reads cfg.text and cfg.pairs (or a vectors: teacher's own texts), removes evaluation sentences, holds out cfg.held_out texts.

    Held out first, so that a smaller budget (cfg.max_texts) is judged on the same held-out texts as a larger one.
    """
    train: Sequence[str]
    if cfg.augment:
        check_augment(cfg.augment)  # before a text is read
    named = named_sources(cfg)
    if len(named) == 1 and named[0].is_plain:
        train, held_out, removed = split_kept(
            kept_texts_of(cfg, named[0]), evaluation, cfg.held_out, cfg.max_texts, seed=0
        )
    elif named:
        return _from_sources(cfg, named, evaluation)
    elif teacher.texts is not None:
        train, held_out, removed = _from_teacher(cfg, teacher, evaluation)
    else:
        raise UserError(
            "--config.text is empty, and so is --config.pairs: name a file, a folder, a datasets id or python-docs"
        )
    _tell_removed(cfg, removed)
    own = len(train)
    if cfg.augment:
        train = with_variants(cfg, train, [*held_out, *evaluation], named[0] if named else None)
    return Corpus(train, held_out, removed, variants=len(train) - own)


def _tell_removed(cfg: ConfigDict, removed: int) -> None:
    if cfg.senteval or cfg.beir or cfg.dev_pairs or cfg.dev_retrieval:
        log.info(
            "removed %d texts that %sthe evaluation sets hold",
            removed,
            "held-out pairs or " if cfg.get("text_pairs") else "",
        )


def _from_sources(cfg: ConfigDict, named: Sequence[TextSource], evaluation: Sequence[str]) -> Corpus:
    """The corpus of sources with roles and weights: of each what split_together leaves it, one after another.

    Positives of pairs may all be passages that cfg.text has, which are read once.
    """
    kept = [kept_texts_of(cfg, of) for of in named]
    roles = [of.role for of in named]
    parts = split_together(kept, roles, evaluation, cfg.held_out, cfg.max_texts, seed=0)
    removed = sum(part.removed for part in parts)
    _tell_removed(cfg, removed)
    train = [part.train for part in parts]
    if cfg.augment:
        apart = [*(text for part in parts for text in part.held_out), *evaluation]
        train = sources_with_variants(cfg, named, train, apart)
    rows = tuple(
        SourceRows(of, len(texts), len(part.held_out), variants=len(texts) - len(part.train))
        for of, texts, part in zip(named, train, parts, strict=True)
    )
    for of in rows:
        log.info("text: %d texts to train on from %s, %d held out", of.train, of.source, of.held_out)
    if empty := [of.source for of in rows if not of.train and not of.source.column]:
        raise UserError(
            f"--config.text={cfg.text}: no text is left to train on of {', '.join(map(str, empty))}; other sources have them all, or bring more"
        )
    train = [texts for texts in train if len(texts)]
    if not train:
        raise UserError(f"--config.pairs={cfg.pairs}: no text is left to train on; bring more")
    whole = train[0] if len(train) == 1 else JoinedTexts(train)
    return Corpus(whole, [text for part in parts for text in part.held_out], removed, rows)


def kept_texts_of(cfg: ConfigDict, of: TextSource) -> KeptTexts:
    """The texts of a source, or their sentences: kept as files, none of them in memory."""
    if of.column:
        check_pairs(of)
    kept = keep_source(of.path, of.column or cfg.text_column, of.key, cache_folder(cfg) / "texts", bool(of.column))
    skipped = ", ".join(f"{count} {reason}" for reason, count in kept.skipped.counts.items() if count)
    log.info("text: %d sentences from %s%s", len(kept.texts), of, f"; skipped {skipped}" if skipped else "")
    return _sentences(cfg, kept)


def _from_teacher(cfg: ConfigDict, teacher: Teacher, evaluation: Sequence[str]) -> tuple[Sequence[str], list[str], int]:
    """The same of the texts that a teacher brings."""
    of, folder = teacher.fingerprint, cache_folder(cfg) / "texts"
    kept = keep_texts(teacher.texts or (), f"the texts of {teacher.source}", of, [of], folder)
    log.info("text: the %d texts of %s", len(kept.texts), teacher.source)
    return split_kept(_sentences(cfg, kept), evaluation, cfg.held_out, cfg.max_texts, seed=0)


def _sentences(cfg: ConfigDict, kept: KeptTexts) -> KeptTexts:
    if cfg.split_sentences:
        kept = keep_sentences(kept)
        log.info("of which the sentences are %d", len(kept.texts))
    return kept
