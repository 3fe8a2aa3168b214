"""Labelled pairs, their mined candidates, and the judge that scores them: what D2LLM's two stages and its evaluation read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.files import look_into
from jdistill.core.progress import log
from jdistill.data.sets.candidates import (
    Candidates,
    Queries,
    by_query,
    candidates,
    passages_of,
    without_positive,
)
from jdistill.data.sets.pairs import Pairs, sample_pairs
from jdistill.data.text.holdout import comparable
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.peft import with_adapter
from jdistill.feeds.judged_splits import first_pairs, split_files
from jdistill.feeds.negatives import mined_negatives
from jdistill.feeds.tokens import cache_folder
from jdistill.feeds.unlabelled import reads_without_positive, with_unlabelled, with_wrong_alone
from jdistill.models.interaction import BRANCHES
from jdistill.models.precision import settled_dtype
from jdistill.teachers.judge import Judge, judge_of
from jdistill.teachers.judge_scores import Scores, logits_at


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
        """The distinct passages of all its pairs, of its file's without those behind the first test_pairs and what was taken out."""
        return list(dict.fromkeys(text for pairs in (self.test, self.dev, self.train) for text in pairs.passages))


@dataclass(frozen=True)
class JudgedPairs:
    """judges: by branch, one model with two instructions."""

    sets: tuple[JudgedSet, ...]
    judges: dict[str, Judge]

    def with_model(self, model: Encoder) -> JudgedPairs:
        """The same with the judge's tuned model."""
        return replace(self, judges={branch: replace(judge, model=model) for branch, judge in self.judges.items()})

    def judge_scores(self, cfg: ConfigDict, judged_set: JudgedSet, pairs: Pairs) -> np.ndarray:
        """What the judge says of the pairs of a file, float32 [N], from the cache where it has them; asked by this process alone."""
        scores = Scores(self.judges[judged_set.branch], cache_folder(cfg))
        return logits_at(scores.ask(pairs.queries, pairs.passages, alone=True))

    def ask_for_evaluation(self, cfg: ConfigDict) -> None:
        """Asks for what the evaluation reads, all processes of a run together."""
        for judged_set in self.sets:
            Scores(self.judges[judged_set.branch], cache_folder(cfg)).ask(*evaluation_pairs(cfg, judged_set))


def read_judged(cfg: ConfigDict, model: Encoder, evaluation_texts: Iterable[str] = ()) -> JudgedPairs:
    """The pair files of the config, with mined candidates.

    Args:
      model: the judge's.
      evaluation_texts: which no training pair holds.

    Raises: UserError for files that cannot be read, K larger than a collection, and what a Judge refuses.
    """
    base = judge_of(
        replace(with_adapter(model, cfg.judge.adapter), dtype=settled_dtype(cfg.teacher_dtype)),
        key="config.teacher",
        **_settings(cfg, BRANCHES[0]),
    )
    if changed_keys := changed_judge_keys(cfg):
        log.warning(
            "%s was tuned by other words than those of --config.judge.%s: it answers best what it was tuned on, which its run's "
            "config.json has",
            cfg.judge.adapter,
            " and --config.judge.".join(changed_keys),
        )
    judges = {branch: replace(base, **_settings(cfg, branch)) for branch in BRANCHES if cfg[branch]}
    sets: list[JudgedSet] = []
    evaluation = {comparable(text) for text in evaluation_texts}
    of_branch = split_files(cfg, evaluation)
    for branch in judges:
        source, key = cfg[branch], f"config.{branch}"
        train, dev, test, removed = of_branch[branch]
        queries = by_query(train)
        reads_wrong = cfg.queries_without_positive and reads_without_positive(cfg)
        wrong = without_positive(train) if reads_wrong else Queries([], [], [])
        log.info(
            "%s: %d training pairs of %d queries, %d with a positive%s; %d dev, %d test pairs; removed %d with an evaluation text or their query%s",
            key, len(train), len(set(train.queries)), len(queries.texts),
            f" and {len(wrong.texts)} with wrong passages alone" if wrong.texts else "", len(dev), len(test), removed,
            "".join(f"; skipped {count} {reason}" for reason, count in train.skipped.items()),
        )  # fmt: skip
        if not queries.texts:
            raise UserError(f"--{key}={source}: no training query has a positive")
        counts = (cfg.positives, cfg.hard_negatives, cfg.easy_negatives)
        passages = passages_of(queries, wrong)
        # Fixed, as the scores that the paper stores (Appendix B), for every seed of a run the same: the judge is asked of them once.
        mined_candidates = candidates(queries, mined_negatives(cfg, queries, passages), passages, counts, seed=0)
        mined_candidates = with_wrong_alone(cfg, mined_candidates, wrong, imitates(cfg))
        if cfg.max_queries:
            mined_candidates = replace(
                mined_candidates,
                queries=mined_candidates.queries[: cfg.max_queries],
                columns=mined_candidates.columns[: cfg.max_queries],
            )
        if len(mined_candidates.queries) < cfg.batch_size:
            raise UserError(
                f"--{key}={source}: {len(mined_candidates.queries)} training queries do not fill one batch of batch_size={cfg.batch_size}"
            )
        kept_apart = [pairs for of in of_branch.values() for pairs in of[1:3]]
        apart = [
            *train.queries,
            *(text for pairs in kept_apart for text in (*pairs.queries, *pairs.passages)),
            *evaluation,
        ]
        mined_candidates = with_unlabelled(cfg, branch, mined_candidates, apart)
        name = Path(source).stem
        name = f"{name}-{branch}" if name in [judged_set.name for judged_set in sets] else name
        sets.append(JudgedSet(name, branch, mined_candidates, train, dev, first_pairs(test, cfg.test_pairs)))
    return JudgedPairs(tuple(sets), judges)


def changed_judge_keys(cfg: ConfigDict) -> list[str]:
    """Keys of cfg.judge in which the run that tuned cfg.judge.adapter, RUN/tune/adapter, asked otherwise; none where no such run is there."""
    theirs = look_into(Path(cfg.judge.adapter).resolve().parent.parent / "config.json") if cfg.judge.adapter else None
    judge = theirs.get("judge") if isinstance(theirs, dict) else None
    if not isinstance(judge, dict):
        return []
    keys = ("yes", "no", *(branch for branch in BRANCHES if cfg[branch]))
    return [name for name in keys if judge.get(name, cfg.judge[name]) != cfg.judge[name]]


def imitates(cfg: ConfigDict) -> bool:
    """Whether a term of the student's loss reads what the judge says; SI reads the labels where no other does."""
    return bool(cfg.loss.imitate or cfg.loss.alpha or cfg.loss.beta or cfg.loss.gamma or cfg.loss.listed)


def pairs_to_judge(cfg: ConfigDict, judged_pairs: JudgedPairs) -> dict[str, tuple[list[str], list[str]]]:
    """Branch -> (queries, passages) that a run asks its judge of: the candidates, if a term of the loss imitates it, and the pairs that it
    is evaluated on."""
    pairs_of = {}
    for judged_set in judged_pairs.sets:
        queries, passages = judged_set.candidates.pairs() if imitates(cfg) else ([], [])
        more = evaluation_pairs(cfg, judged_set)
        pairs_of[judged_set.branch] = queries + more[0], passages + more[1]
    return pairs_of


def evaluation_pairs(cfg: ConfigDict, judged_set: JudgedSet) -> tuple[list[str], list[str]]:
    """(queries, passages) that a student and its judge are compared on: those that choose the thresholds, and the test pairs."""
    train = sample_pairs(judged_set.train, cfg.threshold_pairs, seed=0)
    return train.queries + judged_set.test.queries, train.passages + judged_set.test.passages


def _settings(cfg: ConfigDict, branch: str) -> dict[str, Any]:
    return {
        "template": cfg.judge[branch],
        "yes": cfg.judge.yes,
        "no": cfg.judge.no,
        "query_tokens": cfg.judge.query_tokens,
        "passage_tokens": cfg.judge.passage_tokens,
    }
