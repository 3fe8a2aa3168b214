"""Queries with their candidates and what a judge says of each: the data of D2LLM's student."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.progress import clock
from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.packed_rows import PackedRows
from jdistill.data.sets.pairs import Pairs
from jdistill.data.sets.triplets import TripletTokens, same_texts
from jdistill.encoder.encoder import Encoder
from jdistill.evals.speed import per_second
from jdistill.feeds.feed import Feed
from jdistill.feeds.judged import JudgedPairs, imitates, pairs_to_judge
from jdistill.feeds.judged_feed import JudgedFeed, judged_pairs_of
from jdistill.feeds.shared import Shared
from jdistill.feeds.tokens import cache_folder, make_batches, readers, tokens_of
from jdistill.models.interaction import BRANCHES
from jdistill.teachers.fill import Answered
from jdistill.teachers.judge_scores import Scores, at, logits_at
from jdistill.train.dataset import Data

SAMPLE_OF_EACH = 512  # queries, and passages, of each file that a start is fitted to
TIMED_PAIRS = 64  # that the judge of a dry run scores


@dataclass(frozen=True)
class ScoredCandidates:
    """The training queries of cfg.symmetric and cfg.asymmetric, with mined candidates and the judge's scores."""

    dev_keys = ("dev_queries",)

    def reads_text(self, there_is: bool) -> bool:
        return False

    def read(self, shared: Shared) -> Feed:
        return CandidateFeed(shared, shared.once(judged_pairs_of))


@dataclass(frozen=True)
class CandidateFeed(JudgedFeed):
    """A row is a query with its candidates."""

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        return candidate_batches(cfg, self.judged_pairs, student, made_up)

    def origins(self) -> dict[str, str]:
        judges = self.judged_pairs.judges
        return super().origins() | {"the judge": digest(*(judges[branch].fingerprint() for branch in sorted(judges)))}

    def own_texts(self, cfg: ConfigDict, student: Encoder) -> Sequence[tuple[Encoder, Sequence[str]]]:
        query, document = readers(cfg, student)
        of_sets = [judged_set.candidates for judged_set in self.judged_pairs.sets]
        return [side for each in of_sets for side in ((query, each.queries), (document, each.passages))]

    def logits(self, cfg: ConfigDict, model: Encoder, params: Tree, branch: str, pairs: Pairs) -> np.ndarray:
        return self.pair_scorer(cfg, model, params).score(pairs.queries, pairs.passages, branch == BRANCHES[0])

    def plan(self, cfg: ConfigDict) -> tuple[str, str]:
        """All pairs, since which of them a judge that is yet to be tuned has answered cannot be known."""
        pairs = pairs_to_judge(cfg, self.judged_pairs)
        branch, (queries, passages) = max(pairs.items(), key=lambda item: len(item[1][0]))
        few = queries[:TIMED_PAIRS], passages[:TIMED_PAIRS]
        rate = per_second(lambda: self.judged_pairs.judges[branch].score(*few), len(few[0]))
        count = sum(len(queries) for queries, _ in pairs.values())
        return "judge", f"{count:,} pairs to score, less those that are kept, about {clock(count / rate)} for all"


def candidate_batches(
    cfg: ConfigDict, judged_pairs: JudgedPairs, student: Encoder, made_up: bool = False
) -> tuple[TokenTable, Data]:
    """Queries with their candidates as the student reads them, and what the judge says of each, asked first. C = P + K + I, J = P + K.

    Args:
      judged_pairs: the files, each with its candidates.
      student: reads them by its prompts and lengths.
      made_up: zeros for what the judge would say, as also where no term of the loss imitates it.

    Returns: a sample of the tokens, and Data of batches that hold one task each: "ids", "segments", "positions" int32 [n, R, S], "real" bool
      and "texts" int32 [n, 1 + C] as data.batching.packed_rows has them; "z" float32 [n, C]; "r" float32 [n, J, J], cosines of the judge's
      features; "symmetric" bool [n].
    """
    parts: list[_Part] = []
    query, document = readers(cfg, student)
    for judged_set in judged_pairs.sets:
        columns = judged_set.candidates.columns
        tokens = TripletTokens(
            tokens_of(cfg, query, judged_set.candidates.queries),
            tokens_of(cfg, document, judged_set.candidates.passages),
            columns,
            same_texts(judged_set.candidates.queries, judged_set.candidates.passages),
        )
        pair_of = np.full(columns.shape, -1, np.int64)
        pair_of[columns >= 0] = np.arange((columns >= 0).sum())
        scores = (
            None if made_up or not imitates(cfg) else Scores(judged_pairs.judges[judged_set.branch], cache_folder(cfg))
        )
        parts.append(
            _Part(
                PackedRows(tokens, cfg.length_multiple),
                pair_of,
                sum(judged_set.candidates.counts[:2]),
                scores.ask(*judged_set.candidates.pairs()) if scores else None,
                judged_set.branch == BRANCHES[0],
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
            judged_set.candidates.columns,
            judged_pairs.judges[judged_set.branch].fingerprint(),
            judged_set.candidates.queries,
            judged_set.candidates.passages,
        )
        for judged_set in judged_pairs.sets
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
    """The rows of one file. pair_of: int64 [N, C], the number of each candidate's pair in `answered`; -1: no candidate. features: whether r
    is asked for."""

    packed: PackedRows
    pair_of: np.ndarray
    near: int
    answered: Answered | None
    symmetric: bool
    features: bool

    @cached_property
    def z(self) -> np.ndarray:
        """float32 [N, C], 0 where there is no candidate."""
        logits = np.zeros(self.pair_of.shape, np.float32)
        if self.answered is not None:
            logits[self.pair_of >= 0] = logits_at(self.answered)
        return logits

    def batch(self, rows: np.ndarray, width: int, pad_id: int) -> dict[str, np.ndarray]:
        r = np.zeros((len(rows), self.near, self.near), np.float32)
        if self.answered is not None and self.features:
            there = self.pair_of[rows, : self.near]
            y = at(self.answered, np.maximum(there, 0).ravel())[1].astype(np.float32).reshape(*there.shape, -1)
            y /= np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), 1e-12)
            r = y @ y.transpose(0, 2, 1)
        about = {"z": self.z[rows], "r": r, "symmetric": np.full(len(rows), self.symmetric)}
        return self.packed.padded(rows, width, pad_id) | about
