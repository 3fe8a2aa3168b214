"""The training text of a run: read, cleared of evaluation sentences, split, tokenised and answered by the teacher."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from jdistill import sharding
from jdistill.cache import default_folder
from jdistill.data.batches import Batches, TokenTable, choose_buckets, tokenize_once
from jdistill.data.holdout import remove_evaluation_texts, split_held_out
from jdistill.data.sources import read_texts
from jdistill.encoder import Encoder
from jdistill.errors import UserError
from jdistill.evals.retrieval import beir_queries
from jdistill.evals.sts import read_scored_pairs, sts_sentences
from jdistill.progress import log
from jdistill.teacher import Teacher
from jdistill.train import Data


@dataclass(frozen=True)
class Corpus:
    """train, held_out: distinct texts. removed: how many were dropped because an evaluation set holds them."""

    train: list[str]
    held_out: list[str]
    removed: int

    @property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for text in self.train:
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()


def evaluation_texts(cfg: ConfigDict) -> Iterator[str]:
    """Every sentence of the configured evaluation sets: SentEval's STS test sets, BEIR queries, the dev pairs."""
    if cfg.senteval:
        yield from sts_sentences(Path(cfg.senteval))
    if cfg.beir:
        yield from beir_queries(Path(cfg.beir))
    if cfg.dev_pairs:
        left, right, _ = read_scored_pairs(Path(cfg.dev_pairs))
        yield from left
        yield from right


def read_corpus(cfg: ConfigDict, teacher: Teacher) -> Corpus:
    """Reads cfg.text (or a vectors: teacher's own texts), removes evaluation sentences, holds out cfg.held_out texts."""
    if cfg.text:
        found = read_texts(cfg.text, cfg.text_column, key="config.text")
        texts = found.texts
        skipped = ", ".join(f"{count} {reason}" for reason, count in found.skipped.items() if count)
        log.info("text: %d sentences from %s%s", len(texts), cfg.text, f"; skipped {skipped}" if skipped else "")
    elif teacher.texts is not None:
        texts = list(dict.fromkeys(teacher.texts))
        log.info("text: the %d texts of %s", len(texts), teacher.source)
    else:
        raise UserError("--config.text is empty: name a file, a folder, a datasets id or python-docs")
    texts, removed = remove_evaluation_texts(texts, evaluation_texts(cfg))
    if cfg.senteval or cfg.beir or cfg.dev_pairs:
        log.info("removed %d texts that the evaluation sets hold", removed)
    # Held out first, so that a smaller budget is judged on the same held-out texts as a larger one.
    train, held_out = split_held_out(texts, min(cfg.held_out, len(texts) // 10), seed=0)
    return Corpus(train[: cfg.max_texts] if cfg.max_texts else train, held_out, removed)


def tokenize(cfg: ConfigDict, corpus: Corpus, student: Encoder) -> TokenTable:
    fingerprint = repr((student.tokenizer_fingerprint(), student.max_length, student.default_prompt, student.prompts))
    return tokenize_once(corpus.train, student.tokenize, fingerprint, cache_folder(cfg) / "tokens")


def cache_folder(cfg: ConfigDict) -> Path:
    return Path(cfg.cache_dir) if cfg.cache_dir else default_folder()


def answered(cfg: ConfigDict, corpus: Corpus, teacher: Teacher) -> np.ndarray:
    """The teacher's vectors of the held-out texts, after asking it for whatever the cache lacks of all texts."""
    texts = corpus.held_out + corpus.train
    cache = teacher.cache(cache_folder(cfg), writer=sharding.process_index())
    missing = [texts[i] for i in np.flatnonzero(cache.rows(texts) < 0)]
    cache.fill(missing[sharding.process_index() :: sharding.process_count()], teacher.answer)
    sharding.wait_for_all("teacher answers")
    cache = teacher.cache(cache_folder(cfg), writer=sharding.process_index())
    return cache.gather(cache.rows(corpus.held_out))


def training_data(cfg: ConfigDict, corpus: Corpus, tokens: TokenTable, teacher: Teacher, pad_id: int) -> Data:
    """Batches of the training text with the cached answers, which `answered` has completed."""
    cache = teacher.cache(cache_folder(cfg), writer=sharding.process_index())
    row_of_text = cache.rows(corpus.train)
    return Data(
        tokens, make_batches(cfg, tokens), lambda rows: cache.gather(row_of_text[rows]), corpus.fingerprint, pad_id
    )


def make_batches(cfg: ConfigDict, tokens: TokenTable) -> Batches:
    widths = choose_buckets(tokens.lengths, cfg.length_buckets, cfg.length_multiple)
    return Batches(tokens.lengths, cfg.batch_size, widths, cfg.seed)
