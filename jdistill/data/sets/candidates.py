"""What a query is compared with: its positives, hard negatives and easy ones, each query with the same fixed passages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np

from jdistill.core.errors import UserError
from jdistill.data.sets.pairs import Pairs
from jdistill.data.text.holdout import comparable


@dataclass(frozen=True)
class Queries:
    """N distinct queries, each with the passages that are labelled right, and wrong, for it."""

    texts: list[str]
    positives: list[list[str]]
    negatives: list[list[str]]


@dataclass(frozen=True)
class Candidates:
    """columns: int64 [N, P + K + I], rows of `passages`: the positives, the hard and the easy negatives; -1: there is none.
    counts: (P, K, I)."""

    queries: list[str]
    passages: list[str]
    columns: np.ndarray
    counts: tuple[int, int, int]

    def kinds(self) -> np.ndarray:
        """Which kind each column is: int [P + K + I], 0 positive, 1 hard, 2 easy."""
        return np.repeat([0, 1, 2], self.counts)

    def pairs(self) -> tuple[list[str], list[str]]:
        """All (query, passage) there are, row after row."""
        rows, columns = np.nonzero(self.columns >= 0)
        passages = self.columns[rows, columns]
        return [self.queries[i] for i in rows], [self.passages[j] for j in passages]


def by_query(pairs: Pairs) -> Queries:
    """The distinct queries that have a positive, in their order. A passage that is labelled both ways counts as positive.

    Queries that are the same question (holdout.comparable) share their positives: each has its own first.
    """
    sides_of: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for query, passage, positive in zip(pairs.queries, pairs.passages, pairs.positive, strict=True):
        sides_of.setdefault(query, ({}, {}))[not positive][passage] = None
    kept = {query: sides for query, sides in sides_of.items() if sides[0]}
    of_question: dict[str, dict[str, None]] = {}
    for query, (right, _) in kept.items():
        of_question.setdefault(comparable(query), {}).update(right)
    rights = [right | of_question[comparable(query)] for query, (right, _) in kept.items()]
    return Queries(
        list(kept),
        [list(right) for right in rights],
        [
            [text for text in wrong if text not in right]
            for right, (_, wrong) in zip(rights, kept.values(), strict=True)
        ],
    )


def without_positive(pairs: Pairs) -> Queries:
    """The distinct queries, in their order, that are no question of by_query in any spelling: all that is labelled of them is wrong."""
    right = {comparable(query) for query, positive in zip(pairs.queries, pairs.positive, strict=True) if positive}
    wrong_of: dict[str, dict[str, None]] = {}
    for query, passage in zip(pairs.queries, pairs.passages, strict=True):
        if comparable(query) not in right:
            wrong_of.setdefault(query, {})[passage] = None
    return Queries(list(wrong_of), [[] for _ in wrong_of], [list(wrong) for wrong in wrong_of.values()])


def passages_of(*queries: Queries) -> list[str]:
    """The distinct passages of all queries: what negatives are mined from."""
    return list(dict.fromkeys(text for some in queries for text in chain(*some.positives, *some.negatives)))


def in_turn(*rankings: Sequence[str]) -> Iterator[str]:
    """The texts of several rankings in turn, the best first, each once."""
    return iter(dict.fromkeys(text for text in chain.from_iterable(zip_longest(*rankings)) if text is not None))


def candidates(
    queries: Queries, mined: Sequence[Sequence[str]], passages: Sequence[str], counts: tuple[int, int, int], seed: int
) -> Candidates:
    """Each query's first P positives; its labelled negatives and then the mined ones, K together; and I passages drawn by
    (seed, query), which are neither. passages: distinct, all that may come. Raises UserError for more negatives than passages."""
    P, K, I = counts
    if len(passages) <= K + I:
        raise UserError(
            f"{K} hard and {I} easy negatives a query are asked of a collection of {len(passages)} passages; lower "
            "--config.hard_negatives or --config.easy_negatives"
        )
    row_of = {text: row for row, text in enumerate(passages)}
    plain = [comparable(text) for text in passages]
    columns = np.full((len(queries.texts), P + K + I), -1, np.int64)
    for i, query in enumerate(queries.texts):
        right = queries.positives[i]
        hard = [text for text in dict.fromkeys([*queries.negatives[i], *mined[i]]) if text not in right][:K]
        columns[i, : len(right[:P])] = [row_of[text] for text in right[:P]]
        columns[i, P : P + len(hard)] = [row_of[text] for text in hard]
        near = {comparable(text) for text in [query, *right, *hard]}
        # Drawn with some to spare, so that the same text as a near one can be passed over.
        count = min(len(passages), I + K + len(near))
        drawn = np.random.default_rng([seed, i]).choice(len(passages), count, replace=False)
        easy = [row for row in drawn if plain[row] not in near][:I]
        columns[i, P + K : P + K + len(easy)] = easy
    return Candidates(queries.texts, list(passages), columns, counts)
