"""A corpus with its teacher's embeddings: the data of distillation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.sorted_keys import halves, keys_at
from jdistill.data.batching.batches import TokenTable, check_rows
from jdistill.data.batching.layout import Layout
from jdistill.data.batching.packing import pack_texts
from jdistill.data.text.stored_texts import fingerprint_of
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.answers_ahead import AnswersAhead, texts_asked
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.dev_score import DEV_SETS
from jdistill.feeds.feed import Feed
from jdistill.feeds.roles import corpus_tokens
from jdistill.feeds.shared import Shared
from jdistill.feeds.tokens import make_batches, make_packed_batches, may_pack, number_of_groups
from jdistill.feeds.topics import topics_of
from jdistill.models.registry import architecture_of
from jdistill.train.dataset import BatchOrder, Data
from jdistill.train.origins import HELD_OUT, TRANSLATED_OF

Vectors = Callable[[np.ndarray], np.ndarray]  # rows of the corpus int64 [n] -> float32 [n, D]


@dataclass(frozen=True)
class Texts:
    """Args:
    num_extra: teacher embeddings of other texts per row, drawn anew at each step; 0 for none.
    with_teacher: whether the method learns from the teacher's embeddings. Without, agreement with the teacher does not choose
      the best checkpoint.
    packs: whether the method reads packed texts, as every transformer can; a recurrent student cannot.
    numbered: whether the method asks of each row which text it is.
    """

    num_extra: int = 0
    with_teacher: bool = True
    packs: bool = True
    numbered: bool = False

    @property
    def dev_keys(self) -> tuple[str, ...]:
        return (*DEV_SETS, "held_out") if self.with_teacher else DEV_SETS

    def reads_text(self, there_is: bool) -> bool:
        return True

    def read(self, shared: Shared) -> Feed:
        return TextFeed(shared, self.num_extra, self.with_teacher, self.packs, self.numbered)


@dataclass(frozen=True)
class TextFeed(Feed):
    """A row is a text of the corpus. Fields as in Texts."""

    num_extra: int
    learns_from_teacher: bool
    packs: bool = True
    numbered: bool = False

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        tokens = corpus_tokens(cfg, student, self.shared.corpus)
        embeddings = self.shared.random_embeddings if made_up else self.shared.embeddings.train
        of_teacher = embeddings if self.learns_from_teacher else None
        return tokens, text_batches(
            cfg,
            self.shared.corpus,
            tokens,
            of_teacher,
            student.config.pad_token_id,
            self.num_extra,
            packed=cfg.packed
            and not cfg.topics
            and self.packs
            and architecture_of(student.config).packs
            and may_pack(cfg),
            ask_for=None if made_up else self.shared.embeddings.ask_for,
            in_their_place=self.shared.random_embeddings,
            topics=self.topics(cfg, student, tokens) if cfg.topics else None,
            numbered=self.numbered,
        )

    def origins(self) -> dict[str, str]:
        corpus, of_teacher = self.shared.corpus, super().origins()
        if not self.learns_from_teacher:
            return of_teacher
        translated = {} if corpus.asked is None else {TRANSLATED_OF: fingerprint_of(corpus.asked)}
        return of_teacher | held_out_origins(corpus) | translated

    def topics(self, cfg: ConfigDict, student: Encoder, tokens: TokenTable) -> np.ndarray:
        """The topic of each text, int64 [N]; refused for weighted sources before any text is sorted."""
        if self.shared.corpus.weights(cfg.seed) is not None:
            raise UserError(
                f"--config.topics={cfg.topics} does not go with weights of sources (*); leave one of them out"
            )
        return topics_of(cfg, student, tokens)

    def own_texts(self, cfg: ConfigDict, student: Encoder) -> Sequence[tuple[Encoder, Sequence[str]]]:
        return ()


def held_out_origins(corpus: Corpus) -> dict[str, str]:
    """A fingerprint of what the corpus holds out, as Feed.origins has it; {} where nothing is."""
    pairs = [part for pair, role in corpus.held_out_pairs for part in (pair.source, pair.translation, role)]
    return {HELD_OUT: digest(list(corpus.held_out), pairs)} if corpus.held_out or pairs else {}


def text_batches(
    cfg: ConfigDict,
    corpus: Corpus,
    tokens: TokenTable,
    embeddings: Vectors | None,
    pad_id: int,
    num_extra: int = 0,
    packed: bool = False,
    ask_for: Callable[[np.ndarray | None], None] | None = None,
    in_their_place: Vectors | None = None,
    topics: np.ndarray | None = None,
    numbered: bool = False,
) -> Data:
    """Batches of the corpus, each with its teacher embeddings.

    Args:
      embeddings: rows int64 [n] -> teacher embeddings float32 [n, D]; None for a method that has no teacher.
      num_extra: teacher embeddings of other texts per row, drawn by (seed, step, row); 0 for none.
      packed: several texts stand in a row.
      ask_for: has the teacher answer some rows, int64 [n], or all, before they are read; None: they are answered.
      in_their_place: as embeddings, which nobody is asked for; None: there are no batches without asking.
      topics: int [N], of each text: a batch holds one; None: whatever comes. Not with packed texts.
      numbered: "row" is in every batch.

    Returns: Data of {"ids": int32 [n, L], "mask": bool [n, L], "teacher": float32 [n, D]}; with extra ones "others" float32
      [n, num_extra, D], and which texts those are, as numbers_of_rows has them: "row" int32 [n], "other_rows" int32 [n, num_extra]. "row"
      is there too where a text may come twice into one batch, by its source's weight, in another role or as a translation of it. Packed,
      the tokens are as data.batching.packing has them, and [groups, texts of a group] takes the place of n.
    """
    check_rows(texts=len(corpus.train), tokens=len(tokens))
    if num_extra and len(tokens) < 2:
        raise UserError("the loss compares a text with others, and there is one text to train on; bring more")
    groups = number_of_groups(cfg) if packed else 1
    of_epoch = corpus.weights(cfg.seed)
    repeats = corpus.numbered_by is not None or (of_epoch is not None and max(of_epoch.weights) > 1)

    def beside_tokens(step: int, rows: np.ndarray, vectors: Vectors | None) -> dict[str, np.ndarray]:
        batch = {"row": numbers_of_rows(corpus, rows)} if repeats or num_extra or numbered else {}
        if vectors:
            batch["teacher"] = vectors(rows)
            if num_extra:
                drawn = other_rows(rows, step, cfg.seed, num_extra, len(tokens))
                batch["others"] = vectors(drawn.ravel()).reshape(*drawn.shape, -1)
                batch["other_rows"] = numbers_of_rows(corpus, drawn.ravel()).reshape(drawn.shape)
        return batch

    def padded_rows(step: int, width: int, rows: np.ndarray, vectors: Vectors | None) -> dict[str, np.ndarray]:
        ids, mask = tokens.padded(rows, width, pad_id)
        tokens.release()
        return {"ids": ids, "mask": mask} | beside_tokens(step, rows, vectors)

    def packed_rows(step: int, layout: Layout, rows: np.ndarray, vectors: Vectors | None) -> dict[str, np.ndarray]:
        rows_nxg = rows.reshape(-1, cfg.batch_size // groups)
        of_rows = beside_tokens(step, rows, vectors)
        by_group = {name: x.reshape(*rows_nxg.shape, *x.shape[1:]) for name, x in of_rows.items()}
        arrays = pack_texts(tokens, rows_nxg, layout, pad_id) | by_group
        tokens.release()
        return arrays

    def asked_rows(step: int, shape: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        if embeddings is not None and ahead is not None:
            ahead.reach(step)
        return rows_of(step, shape, rows, embeddings)

    def unasked_rows(step: int, shape: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        return rows_of(step, shape, rows, in_their_place if embeddings else None)

    rows_of: Callable[..., dict[str, np.ndarray]] = packed_rows if packed else padded_rows
    make = make_packed_batches if packed else make_batches
    batches: BatchOrder = make(cfg, tokens.lengths, of_epoch)
    if topics is not None:
        batches = replace(make_batches(cfg, tokens.lengths), groups=topics)
    ahead = AnswersAhead(cfg, batches, ask_for, every_row=num_extra > 0) if ask_for else None
    asked = texts_asked(cfg, batches, every_row=num_extra > 0) if embeddings else 0
    made_up = unasked_rows if in_their_place else None
    fingerprint = corpus.fingerprint if topics is None else digest(corpus.fingerprint, topics)
    return Data(batches, asked_rows, fingerprint, "texts", made_up=made_up, asked=asked)


def numbers_of_rows(corpus: Corpus, rows: np.ndarray) -> np.ndarray:
    """Which text each row is, int32 [n]: the row itself or, of a corpus in which a text may stand twice, in another role or as a translation,
    which shares the number of its source, 31 bits of the text's hash."""
    if corpus.numbered_by is None:
        return rows.astype(np.int32)
    return (halves(keys_at(corpus.numbered_by, rows))[:, 0] >> np.uint64(33)).astype(np.int32)


def other_rows(rows: np.ndarray, step: int, seed: int, count: int, texts: int) -> np.ndarray:
    """For each row `count` others of `texts`, int64 [len(rows), count], drawn by (seed, step, row) alone: however many
    processes share a batch, they draw the same."""
    drawn = [np.random.default_rng([seed, step, int(row)]).integers(0, texts - 1, count) for row in rows]
    return np.stack([others + (others >= row) for others, row in zip(drawn, rows, strict=True)])
