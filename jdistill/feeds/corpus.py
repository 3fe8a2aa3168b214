"""The training text of a run: read, cleared of evaluation sentences, split, tokenised and answered by the teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.files import default_folder
from jdistill.core.progress import log
from jdistill.data.batching.batches import (
    Batches,
    TokenTable,
    check_rows,
    choose_buckets,
    tokenize_once,
)
from jdistill.data.sets.collections import query_texts
from jdistill.data.sets.sts import read_scored_pairs, sts_sentences
from jdistill.data.sets.triplets import (
    Triplets,
    TripletTokens,
    passage_columns,
    read_triplets,
    remove_evaluation_rows,
    same_texts,
)
from jdistill.data.text.augment import variants
from jdistill.data.text.holdout import remove_evaluation_texts, split_held_out
from jdistill.data.text.sentences import split_sentences
from jdistill.data.text.sources import read_texts
from jdistill.encoder.encoder import Encoder
from jdistill.teachers.cache import whole
from jdistill.teachers.embeddings import Teacher
from jdistill.teachers.fill import Answered, ask
from jdistill.train.dataset import Data


@dataclass(frozen=True)
class Corpus:
    """train, held_out: distinct texts. removed: how many were dropped because an evaluation set holds them."""

    train: list[str]
    held_out: list[str]
    removed: int

    @property
    def fingerprint(self) -> str:
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
    if cfg.split_sentences:
        texts = split_sentences(texts)
        log.info("of which the sentences are %d", len(texts))
    evaluation = list(evaluation_texts(cfg))
    texts, removed = remove_evaluation_texts(texts, evaluation)
    if cfg.senteval or cfg.beir or cfg.dev_pairs:
        log.info("removed %d texts that the evaluation sets hold", removed)
    # Held out first, so that a smaller budget is judged on the same held-out texts as a larger one.
    train, held_out = split_held_out(texts, min(cfg.held_out, len(texts) // 10), seed=0)
    train = train[: cfg.max_texts] if cfg.max_texts else train
    if cfg.augment:
        train += augmented(cfg, train, held_out + evaluation)
    return Corpus(train, held_out, removed)


def augmented(cfg: ConfigDict, train: list[str], apart: list[str]) -> list[str]:
    """Variants of the training texts (data.augment) that equal none of those kept apart, held out or of an evaluation set."""
    found, _ = remove_evaluation_texts(variants(train, cfg.augment, cfg.text, cfg.text_column), apart)
    log.info("augmented: %d further texts by %s", len(found), cfg.augment)
    return found


def read_labelled(cfg: ConfigDict) -> Triplets:
    """Reads cfg.triplets and removes rows that hold a sentence of an evaluation set."""
    found = remove_evaluation_rows(read_triplets(cfg.triplets), evaluation_texts(cfg))
    skipped = ", ".join(f"{count} {reason}" for reason, count in found.skipped.items())
    log.info("triplets: %d from %s%s", len(found), cfg.triplets, f"; skipped {skipped}" if skipped else "")
    if len(found) < cfg.finetune.batch_size:
        raise UserError(
            f"--config.triplets={cfg.triplets}: {len(found)} rows do not fill one batch of finetune.batch_size={cfg.finetune.batch_size}"
        )
    return found


def tokenize(cfg: ConfigDict, corpus: Corpus, student: Encoder) -> TokenTable:
    return tokens_of(cfg, student, corpus.train)


def sample(corpus: Corpus, count: int) -> list[str]:
    """At most so many of the training texts, the same for the same texts."""
    rows = np.random.default_rng(0).permutation(len(corpus.train))[:count]
    return [corpus.train[i] for i in np.sort(rows)]


def tokens_of(cfg: ConfigDict, student: Encoder, texts: list[str]) -> TokenTable:
    """The texts as the student reads them, tokenised once and kept."""
    fingerprint = repr((student.tokenizer_fingerprint(), student.max_length, student.default_prompt, student.prompts))
    return tokenize_once(texts, student.tokenize, fingerprint, cache_folder(cfg) / "tokens")


def cache_folder(cfg: ConfigDict) -> Path:
    return Path(cfg.cache_dir) if cfg.cache_dir else default_folder()


class Answers:
    """The teacher's vectors of a corpus. The first look at a side of it asks the teacher for what the cache lacks."""

    def __init__(self, cfg: ConfigDict, corpus: Corpus, teacher: Teacher):
        self._folder, self._corpus, self._teacher = cache_folder(cfg), corpus, teacher
        self._train: Answered | None = None
        self._held_out: np.ndarray | None = None

    def _ask(self, texts: list[str]) -> Answered:
        cache = self._teacher.cache(self._folder, writer=sharding.process_index())
        return ask(cache, texts, whole(self._teacher.answer), "teacher answers")

    def of(self, texts: list[str]) -> np.ndarray:
        """The vectors of some texts, float32 [N, D]. All processes of a run must call it together."""
        return self._ask(texts).read()

    def train(self, rows: np.ndarray) -> np.ndarray:
        """The vectors of these rows of corpus.train, float32 [len(rows), D]. All processes must call it the first time."""
        if self._train is None:
            self._train = self._ask(self._corpus.train)
        return self._train.read(rows)

    def held_out(self) -> np.ndarray:
        """The vectors of corpus.held_out, float32 [N, D]. All processes of a run must call it the first time."""
        if self._held_out is None:
            self._held_out = self._ask(self._corpus.held_out).read()
        return self._held_out


def text_data(
    cfg: ConfigDict,
    corpus: Corpus,
    tokens: TokenTable,
    answers: Callable[[np.ndarray], np.ndarray] | None,
    pad_id: int,
    others: int = 0,
) -> Data:
    """Batches of the training text with the teacher's answers, None: without (Stage.data "texts", Stage.others)."""
    check_rows(texts=len(corpus.train), tokens=len(tokens.lengths))

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        ids, mask = tokens.padded(rows, width, pad_id)
        batch = {"ids": ids, "mask": mask}
        if answers is not None:
            batch["teacher"] = answers(rows)
        if others and answers is not None:
            drawn = other_rows(rows, step, cfg.seed, others, len(tokens.lengths))
            batch["others"] = answers(drawn.ravel()).reshape(*drawn.shape, -1)
            batch |= {"row": rows.astype(np.int32), "other_rows": drawn.astype(np.int32)}
        return batch

    return Data(make_batches(cfg, tokens.lengths), rows_of, corpus.fingerprint, "texts")


def other_rows(rows: np.ndarray, step: int, seed: int, count: int, texts: int) -> np.ndarray:
    """For each row `count` others of `texts`, int64 [len(rows), count], drawn by (seed, step, row) alone: however many
    processes share a batch, they draw the same."""
    drawn = [np.random.default_rng([seed, step, int(row)]).integers(0, texts - 1, count) for row in rows]
    return np.stack([those + (those >= row) for those, row in zip(drawn, rows, strict=True)])


def triplet_data(cfg: ConfigDict, triplets: Triplets, student: Encoder) -> tuple[TripletTokens, Data]:
    """The tokens of the triplets by the student's prompts and lengths, and their batches (Stage.data "triplets")."""
    most = max(map(len, triplets.negatives))
    passages, columns = passage_columns(triplets, min(cfg.negatives or most, most))
    fewer = int((columns < 0).any(1).sum())
    if fewer:
        log.info(
            "%d of %d triplets have fewer than %d negatives; the gaps are masked",
            fewer,
            len(triplets),
            columns.shape[1] - 1,
        )
    query = in_role(student, "query", cfg.query_length)
    passage = in_role(student, "document", cfg.document_length)
    tokens = TripletTokens(
        tokens_of(cfg, query, triplets.anchors),
        tokens_of(cfg, passage, passages),
        columns,
        same_texts(triplets.anchors),
    )
    check_rows(anchors=len(tokens.anchors.lengths), columns=len(columns))
    check_rows(passages=len(tokens.passages.lengths), texts=len(passages))
    fingerprint = digest(columns, triplets.anchors, passages)

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        return tokens.padded(rows, width, student.config.pad_token_id)

    return tokens, Data(make_batches(cfg, tokens.lengths), rows_of, fingerprint, "triplets", columns.shape[1] + 1)


def configured_prompts(cfg: ConfigDict) -> dict[str, str]:
    """The prompts that the config gives the student, by role."""
    return {role: text for role, text in (("query", cfg.query_prompt), ("document", cfg.document_prompt)) if text}


def in_role(student: Encoder, role: str, limit: int) -> Encoder:
    """The encoder as it reads a "query" or a "document": that prompt if it has one, `limit` tokens (0: its own limit)."""
    return replace(
        student,
        default_prompt=student.prompt_for(role) or student.default_prompt,
        max_length=min(limit or student.max_length, student.max_length),
    )


# A width costs a compilation of seconds, which fewer steps than this would not repay; but the first few always do.
STEPS_PER_WIDTH, FEWEST_WIDTHS = 50, 4


def make_batches(cfg: ConfigDict, lengths: np.ndarray) -> Batches:
    """Batches of a stage; a short run gets fewer widths than cfg.length_buckets allows."""
    steps = cfg.max_steps or int(cfg.epochs * len(lengths) / cfg.batch_size)
    count = min(cfg.length_buckets, max(FEWEST_WIDTHS, steps // STEPS_PER_WIDTH))
    return Batches(lengths, cfg.batch_size, choose_buckets(lengths, count, cfg.length_multiple), cfg.seed)
