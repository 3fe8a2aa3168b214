"""Parallel text in a run's corpus: the student answers the teacher's vector of a source for the source and for its translations.

Source: Reimers and Gurevych 2020, Making Monolingual Sentence Embeddings Multilingual using Knowledge Distillation, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.mapped import slices_of
from jdistill.core.progress import log
from jdistill.data.text.holdout import comparable
from jdistill.data.text.kept_split import BLOCK_TEXTS, choose_rows
from jdistill.data.text.kept_texts import KeptTexts
from jdistill.data.text.repeats import repeated_rows
from jdistill.data.text.stored_texts import JoinedTexts, StoredTexts
from jdistill.data.text.text_pairs import PairSide, ParallelPair, as_pair, keep_pairs
from jdistill.data.text.text_sources import TextSource, text_sources
from jdistill.encoder.encoder import Encoder
from jdistill.evals.translations import PairVectors
from jdistill.feeds.corpus import Corpus, SourceRows, read_corpus
from jdistill.feeds.tokens import cache_folder
from jdistill.teachers.embeddings import Teacher

PAIRS_KEY = "config.text_pairs"


@dataclass(frozen=True)
class PairSource:
    """A source of pairs, split.

    Args:
      source: with role and weight.
      kept: all its pairs.
      passed: rows that are neither trained on nor held out, int64, rising: of another source before, or with an evaluation sentence.
      held_out_rows: of those kept apart, int64, rising.
      removed: how many pairs an evaluation sentence equals.
    """

    source: TextSource
    kept: KeptTexts
    passed: np.ndarray
    held_out_rows: np.ndarray
    removed: int

    def held_out(self) -> list[ParallelPair]:
        """The pairs kept apart."""
        return [as_pair(row) for row in self.kept.texts.take(self.held_out_rows)]


def read_text_and_pairs(cfg: ConfigDict, teacher: Teacher, evaluation: Sequence[str]) -> Corpus:
    """The corpus of cfg.text (feeds.corpus), and after it the sources and translations of cfg.text_pairs.

    Of the pairs, too, cfg.held_out are kept apart, a tenth at most: what equals either text of one is distilled nowhere, as what
    equals a held-out text of cfg.text is in no pair. Where there is no other text, the held-out sources are the held-out texts.

    Raises: UserError as read_corpus and keep_pairs, and for a source of which no pair is left.
    """
    if not cfg.text_pairs:
        return read_corpus(cfg, teacher, evaluation)
    pairs = hold_out_pairs(cfg, text_sources(cfg.text_pairs, PAIRS_KEY), evaluation)
    apart = [text for of in pairs for pair in of.held_out() for text in (pair.source, pair.translation)]
    if not (cfg.text or cfg.pairs) and teacher.texts is None:
        return add_pairs(cfg, Corpus([], [], 0), pairs, apart)
    corpus = read_corpus(cfg, teacher, [*evaluation, *apart])
    if not corpus.sources:
        named = TextSource(cfg.text or teacher.source)
        whole = SourceRows(named, len(corpus.train), len(corpus.held_out), variants=corpus.variants)
        corpus = Corpus(corpus.train, corpus.held_out, corpus.removed, (whole,))
    return add_pairs(cfg, corpus, pairs, [*apart, *corpus.held_out])


def hold_out_pairs(cfg: ConfigDict, named: Sequence[TextSource], evaluation: Sequence[str]) -> list[PairSource]:
    """The pairs of each source: those of which an evaluation sentence equals either text removed, and cfg.held_out of all kept apart,
    by the hash of the source alone, so that the translations of a source stay together."""
    folder = cache_folder(cfg) / "texts"
    kept = [keep_pairs(of.path, PAIRS_KEY, folder) for of in named]
    again = repeated_rows([of.texts for of in kept], [of.role for of in named], folder)
    forbidden = {comparable(text) for text in evaluation}
    removed = [rows_with(of.texts, forbidden) for of in kept]
    passed = [np.union1d(*rows) for rows in zip(again, removed, strict=True)]
    sides = [PairSide(of.texts, "source") for of in kept]
    split = choose_rows(sides, passed, set(), cfg.held_out, seed=0)
    parts = zip(named, kept, passed, split, removed, strict=True)
    return [PairSource(of, texts, gone, rows.held_out, len(cut)) for of, texts, gone, rows, cut in parts]


def rows_with(pairs: StoredTexts, texts: Iterable[str]) -> np.ndarray:
    """The rows of pairs whose source or translation is one of some texts, as `comparable` has them: int64, rising."""
    wanted, rows = set(texts), []
    for block in slices_of(len(pairs) if wanted else 0, BLOCK_TEXTS):
        for row, pair in enumerate(map(as_pair, pairs[block]), block.start):
            if comparable(pair.source) in wanted or comparable(pair.translation) in wanted:
                rows.append(row)
    return np.array(rows, np.int64)


def add_pairs(cfg: ConfigDict, corpus: Corpus, pairs: Sequence[PairSource], apart: Sequence[str]) -> Corpus:
    """A corpus, and after it of each source of pairs the sources that are not there yet, and the translations.

    Args:
      apart: texts that no pair to train on may hold.
    """
    forbidden = {comparable(text) for text in apart}
    training = [_training(cfg, of, forbidden) for of in pairs]
    by_role = corpus.role_rows() if corpus.sources else []
    before = [corpus.train[start:stop] for _, start, stop in by_role]
    roles = [role for role, _, _ in by_role] + [of.source.role for of in pairs]
    sides = [PairSide(left, "source") for left, _ in training]
    again = repeated_rows([*before, *sides], roles, cache_folder(cfg) / "texts", within=True)[len(before) :]
    texts, asked, rows = [*before], [*before], [*corpus.sources]
    held_out, kept_apart = [*corpus.held_out], set[tuple[str, str]]()
    for of, (left, gone), repeated in zip(pairs, training, again, strict=True):
        new_rows = np.union1d(gone, left.file_rows(repeated))
        new = of.kept.texts.without(new_rows, len(left) - len(repeated), None)
        sources = _side(new, "source", of, new_rows)
        own = [] if corpus.sources else list(dict.fromkeys((of.source.role, pair.source) for pair in of.held_out()))
        own = [text for text in own if text not in kept_apart]  # several files may share their English side
        kept_apart.update(own)
        held_out += [text for _, text in own]
        texts += [sources, _side(left, "translation", of, gone)]
        asked += [sources, _side(left, "source", of, gone)]
        rows += [SourceRows(of.source, len(new), len(own)), SourceRows(of.source, len(left), 0, translated=True)]
        log.info(
            "text_pairs: %d pairs to train on from %s, %d of their sources new, %d pairs held out, %d removed as evaluation text",
            len(left), of.source, len(new), len(of.held_out_rows), of.removed,
        )  # fmt: skip
    train = JoinedTexts(texts)
    if isinstance(corpus.train, JoinedTexts):
        train.fingerprint = None  # runs that have begun are resumed by digest(texts)
    removed = corpus.removed + sum(of.removed for of in pairs)
    of_pairs = tuple((pair, of.source.role) for of in pairs for pair in of.held_out())
    return Corpus(train, held_out, removed, tuple(rows), JoinedTexts(asked), of_pairs)


def _training(cfg: ConfigDict, of: PairSource, forbidden: set[str]) -> tuple[StoredTexts, np.ndarray]:
    """The pairs of a source to train on, and the rows that are not, int64, rising. Raises UserError where none is left."""
    gone = np.union1d(np.union1d(of.passed, of.held_out_rows), rows_with(of.kept.texts, forbidden))
    count = len(of.kept.texts) - len(gone)
    if not count:
        raise UserError(
            f"--{PAIRS_KEY}={cfg.text_pairs}: no pair is left to train on of {of.source}: of {len(of.kept.texts)} pairs all are held out, of "
            "evaluation sets, or of another source before; bring more, or lower --config.held_out"
        )
    return of.kept.texts.without(gone, min(count, cfg.max_texts or count), None), gone


def _side(pairs: StoredTexts, field: str, of: PairSource, gone: np.ndarray) -> PairSide:
    return PairSide(pairs, field, digest(of.kept.content, gone.tobytes(), str(len(pairs))))


def held_out_pair_vectors(model: Encoder, corpus: Corpus, of_teacher: np.ndarray) -> PairVectors:
    """The vectors of the held-out pairs, each text read by the prompt of its role. of_teacher: of the sources, float32 [P, T]."""
    pairs = corpus.held_out_pairs
    sides = {name: np.empty((len(pairs), model.dim), np.float32) for name in ("source", "translation")}
    for role in dict.fromkeys(role for _, role in pairs):
        here = [k for k, (_, other) in enumerate(pairs) if other == role]
        for name, vectors in sides.items():
            vectors[here] = model.in_role(role).encode([getattr(pairs[k][0], name) for k in here])
    texts, languages = [(of.source, of.translation) for of, _ in pairs], [of.language for of, _ in pairs]
    return PairVectors(texts, languages, sides["source"], sides["translation"], of_teacher)
