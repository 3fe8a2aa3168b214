"""Labelled pairs, their mined candidates and a judge's scores of them: the data of D2LLM's two stages and of its evaluation."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.packed_rows import PackedRows
from jdistill.data.sets.candidates import (
    Candidates,
    by_query,
    candidates,
    passages_of,
)
from jdistill.data.sets.pairs import (
    Pairs,
    drawn,
    read_pairs,
    train_and_test,
    without,
)
from jdistill.data.sets.triplets import TripletTokens, same_texts
from jdistill.data.text.holdout import comparable
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import peft
from jdistill.feeds.corpus import (
    cache_folder,
    evaluation_texts,
    in_role,
    make_batches,
    tokens_of,
)
from jdistill.feeds.negatives import mined
from jdistill.models import lora
from jdistill.models.interaction import BRANCHES
from jdistill.models.registry import architecture_of, names_of
from jdistill.teachers.fill import Answered
from jdistill.teachers.judge import Judge, judge_of
from jdistill.teachers.judge_scores import Scores, at, logits_at
from jdistill.train.loop import Data

SAMPLE_OF_EACH = 512  # queries, and passages, of each file that a start is fitted to


@dataclass(frozen=True)
class JudgedSet:
    """A file of labelled pairs. branch: symmetric or asymmetric. dev: pairs of training queries that nothing is trained on."""

    name: str
    branch: str
    candidates: Candidates
    train: Pairs
    dev: Pairs
    test: Pairs

    @property
    def passages(self) -> list[str]:
        """The distinct passages of all its pairs."""
        return list(dict.fromkeys(text for pairs in (self.test, self.dev, self.train) for text in pairs.passages))


@dataclass(frozen=True)
class Judged:
    """judges: by branch, one model with two instructions."""

    sets: tuple[JudgedSet, ...]
    judges: dict[str, Judge]

    def with_model(self, model: Encoder) -> Judged:
        """The same with the judge's tuned model."""
        return replace(self, judges={branch: replace(judge, model=model) for branch, judge in self.judges.items()})

    def judge_scores(self, cfg: ConfigDict, one: JudgedSet, pairs: Pairs) -> np.ndarray:
        """What the judge says of the pairs of a file, float32 [N], from the cache where it has them; asked by this process alone."""
        scores = Scores(self.judges[one.branch], cache_folder(cfg))
        return logits_at(scores.ask(pairs.queries, pairs.passages, alone=True))

    def ask_for_evaluation(self, cfg: ConfigDict) -> None:
        """Asks for what the evaluation reads, all processes of a run together."""
        for one in self.sets:
            Scores(self.judges[one.branch], cache_folder(cfg)).ask(*evaluation_pairs(cfg, one))


def read_judged(cfg: ConfigDict, model: Encoder) -> Judged:
    """The pair files of the config, with mined candidates. model: the judge's. Raises UserError for files that cannot be read, K larger than
    a collection, and what a Judge refuses."""
    base = judge_of(
        replace(with_adapter(model, cfg.judge.adapter), dtype=cfg.teacher_dtype),
        key="config.teacher",
        **_settings(cfg, BRANCHES[0]),
    )
    if found_other := other_words(cfg):
        log.warning(
            "%s was tuned by other words than those of --config.judge.%s: it answers best what it was tuned on, which its run's "
            "config.json has",
            cfg.judge.adapter,
            " and --config.judge.".join(found_other),
        )
    judges = {branch: replace(base, **_settings(cfg, branch)) for branch in BRANCHES if cfg[branch]}
    sets: list[JudgedSet] = []
    evaluation = {comparable(text) for text in evaluation_texts(cfg)}
    for branch in judges:
        source, key = cfg[branch], f"config.{branch}"
        pairs = read_pairs(source, key, (cfg.train_split, cfg.test_split))
        rest, test = train_and_test(pairs, cfg.train_split, cfg.test_split, cfg.held_out_queries, key)
        if not len(test):
            raise UserError(
                f"--{key}={source}: no test pairs; --config.held_out_queries={cfg.held_out_queries} keeps some apart"
            )
        rest, removed = without(rest, evaluation, {comparable(query) for query in test.queries})
        train, dev = train_and_test(_one_split(rest), "", "", cfg.dev_queries, key)
        queries = by_query(train)
        log.info(
            "%s: %d training pairs of %d queries, %d with a positive; %d dev and %d test pairs; removed %d with an evaluation text or a test query%s",
            key, len(train), len(set(train.queries)), len(queries.texts), len(dev), len(test), removed,
            "".join(f"; skipped {count} {reason}" for reason, count in pairs.skipped.items()),
        )  # fmt: skip
        if not queries.texts:
            raise UserError(f"--{key}={source}: no training query has a positive")
        counts = (cfg.positives, cfg.hard_negatives, cfg.easy_negatives)
        passages = passages_of(queries)
        # Fixed (section 3.4), for every seed of a run the same: the judge is asked of them once.
        found = candidates(queries, mined(cfg, queries, passages), passages, counts, seed=0)
        if cfg.max_queries:
            found = replace(found, queries=found.queries[: cfg.max_queries], columns=found.columns[: cfg.max_queries])
        if len(found.queries) < cfg.batch_size:
            raise UserError(
                f"--{key}={source}: {len(found.queries)} training queries do not fill one batch of batch_size={cfg.batch_size}"
            )
        name = Path(source).stem
        name = f"{name}-{branch}" if name in [one.name for one in sets] else name
        sets.append(JudgedSet(name, branch, found, train, dev, _first(test, cfg.test_pairs)))
    return Judged(tuple(sets), judges)


def with_adapter(model: Encoder, folder: str) -> Encoder:
    """The model with a LoRA folder of PEFT's merged in; "": as it is. Raises UserError for an adapter of another base."""
    if not folder or not architecture_of(model.config).decoder:
        return model
    adapters, alpha = peft.load(Path(folder), {path: name for path, (name, _) in names_of(model.config).items()})
    return model.with_weights({"model": lora.merge(model.params, adapters, alpha)})


def other_words(cfg: ConfigDict) -> list[str]:
    """Keys of cfg.judge in which the run that tuned cfg.judge.adapter, RUN/tune/adapter, asked otherwise; none where no such run is there."""
    theirs = Path(cfg.judge.adapter).resolve().parent.parent / "config.json" if cfg.judge.adapter else None
    if theirs is None or not theirs.is_file():
        return []
    judge = json.loads(theirs.read_text()).get("judge", {})
    words = ("yes", "no", *(branch for branch in BRANCHES if cfg[branch]))
    return [name for name in words if judge.get(name, cfg.judge[name]) != cfg.judge[name]]


def judgement_data(cfg: ConfigDict, given: Judged) -> tuple[TokenTable, Data]:
    """Prompts with their labels: each query's positives, and as many of its hard negatives. Batches have "ids" int32 and "mask" bool
    [n, L], "label" float32 [n]."""
    ids: list[list[int]] = []
    labels: list[float] = []
    for one in given.sets:
        P, K, _ = one.candidates.counts
        queries, passages = [], []
        for i, row in enumerate(one.candidates.columns):
            right = row[:P][row[:P] >= 0]
            wrong = row[P : P + K][row[P : P + K] >= 0][: len(right)]
            queries += [one.candidates.queries[i]] * (len(right) + len(wrong))
            passages += [one.candidates.passages[j] for j in (*right, *wrong)]
            labels += [1.0] * len(right) + [0.0] * len(wrong)
        ids += given.judges[one.branch].prompts(queries, passages)
    model, label = next(iter(given.judges.values())).model, np.array(labels, np.float32)
    tokens = TokenTable(
        np.fromiter((token for row in ids for token in row), np.int32), np.cumsum([0, *map(len, ids)]).astype(np.int64)
    )

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        ids, mask = tokens.padded(rows, width, model.config.pad_token_id)
        return {"ids": ids, "mask": mask, "label": label[rows]}

    fingerprint = digest(tokens.ids, tokens.offsets, label)
    return tokens, Data(make_batches(cfg, tokens.lengths), rows_of, fingerprint, "judgements")


def imitates(cfg: ConfigDict) -> bool:
    """Whether a term of the student's loss reads what the judge says."""
    return bool(cfg.loss.imitate or cfg.loss.alpha or cfg.loss.beta or cfg.loss.gamma or cfg.loss.delta)


def pairs_to_judge(cfg: ConfigDict, given: Judged) -> dict[str, tuple[list[str], list[str]]]:
    """Branch -> (queries, passages) that a run asks its judge of: the candidates, if a term of the loss imitates it, and the pairs that it
    is evaluated on."""
    found = {}
    for one in given.sets:
        queries, passages = one.candidates.pairs() if imitates(cfg) else ([], [])
        more = evaluation_pairs(cfg, one)
        found[one.branch] = queries + more[0], passages + more[1]
    return found


def evaluation_pairs(cfg: ConfigDict, one: JudgedSet) -> tuple[list[str], list[str]]:
    """(queries, passages) that a student and its judge are compared on: those that choose the thresholds, and the test pairs."""
    train = drawn(one.train, cfg.threshold_pairs, seed=0)
    return train.queries + one.test.queries, train.passages + one.test.passages


def candidate_data(cfg: ConfigDict, given: Judged, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
    """Queries with their candidates as the student reads them, and what the judge says of each, asked first. C = P + K + I, J = P + K.

    Batches hold one task each: "ids", "segments", "positions" [n, R, S], "real", "texts" [n, 1 + C] as data.packed_rows has them; "z" float32
    [n, C]; "r" float32 [n, J, J], cosines of the judge's features; "symmetric" bool [n]. made_up: zeros for what the judge would
    say, as also where no term of the loss imitates it.
    """
    parts: list[_Part] = []
    for one in given.sets:
        columns = one.candidates.columns
        tokens = TripletTokens(
            tokens_of(cfg, in_role(student, "query", cfg.query_length), one.candidates.queries),
            tokens_of(cfg, in_role(student, "document", cfg.document_length), one.candidates.passages),
            columns,
            same_texts(one.candidates.queries),
        )
        pair_of = np.full(columns.shape, -1, np.int64)
        pair_of[columns >= 0] = np.arange((columns >= 0).sum())
        scores = None if made_up or not imitates(cfg) else Scores(given.judges[one.branch], cache_folder(cfg))
        parts.append(
            _Part(
                PackedRows(tokens, cfg.length_multiple),
                pair_of,
                sum(one.candidates.counts[:2]),
                scores.ask(*one.candidates.pairs()) if scores else None,
                one.branch == BRANCHES[0],
                bool(cfg.loss.gamma),
            )
        )
    starts = np.cumsum([0, *(len(part.pair_of) for part in parts)])
    group = np.repeat(np.arange(len(parts)), np.diff(starts))

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        which = int(group[rows[0]])
        return parts[which].batch(rows - starts[which], width, student.config.pad_token_id)

    lengths = np.concatenate([part.packed.lengths for part in parts])  # which decide the order
    of_sets = [
        (
            one.candidates.columns,
            given.judges[one.branch].fingerprint(),
            one.candidates.queries,
            one.candidates.passages,
        )
        for one in given.sets
    ]
    fingerprint = digest(*(part for parts_of_set in of_sets for part in parts_of_set), lengths)
    tokens_of_rows = np.concatenate([part.packed.text_lengths.sum(1) for part in parts])
    batches = replace(make_batches(cfg, lengths), groups=group, tokens=tokens_of_rows)
    per_row = 1 + parts[0].pair_of.shape[1]
    # What is fitted to the text is to fit queries and passages of each file alike.
    sides = [side for part in parts for side in (part.packed.tokens.anchors, part.packed.tokens.passages)]
    sample = reduce(TokenTable.joined, (side.some(SAMPLE_OF_EACH) for side in sides))
    return sample, Data(batches, rows_of, fingerprint, "queries", per_row)


@dataclass(frozen=True)
class _Part:
    """The rows of one file. pair_of: int64 [N, C], the number of each candidate's pair in `judged`; -1: no candidate. features: whether r
    is asked for."""

    packed: PackedRows
    pair_of: np.ndarray
    near: int
    judged: Answered | None
    symmetric: bool
    features: bool

    @cached_property
    def z(self) -> np.ndarray:
        """float32 [N, C], 0 where there is no candidate."""
        found = np.zeros(self.pair_of.shape, np.float32)
        if self.judged is not None:
            found[self.pair_of >= 0] = logits_at(self.judged)
        return found

    def batch(self, rows: np.ndarray, width: int, pad_id: int) -> dict[str, np.ndarray]:
        r = np.zeros((len(rows), self.near, self.near), np.float32)
        if self.judged is not None and self.features:
            there = self.pair_of[rows, : self.near]
            y = at(self.judged, np.maximum(there, 0).ravel())[1].astype(np.float32).reshape(*there.shape, -1)
            y /= np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), 1e-12)
            r = y @ y.transpose(0, 2, 1)
        about = {"z": self.z[rows], "r": r, "symmetric": np.full(len(rows), self.symmetric)}
        return self.packed.padded(rows, width, pad_id) | about


def _settings(cfg: ConfigDict, branch: str) -> dict[str, Any]:
    return {
        "template": cfg.judge[branch],
        "yes": cfg.judge.yes,
        "no": cfg.judge.no,
        "query_tokens": cfg.judge.query_tokens,
        "passage_tokens": cfg.judge.passage_tokens,
    }


def _one_split(pairs: Pairs) -> Pairs:
    return replace(pairs, splits=[""] * len(pairs))


def _first(pairs: Pairs, count: int) -> Pairs:
    """The first `count` pairs; 0: all."""
    return pairs.where([i < count for i in range(len(pairs))]) if count else pairs
