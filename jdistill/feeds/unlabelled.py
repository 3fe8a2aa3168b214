"""Queries without a right passage, whose mined ones the judge alone scores: of the file's own, labelled wrong, and of a text without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.candidates import Candidates, Queries, candidates
from jdistill.data.text.holdout import comparable
from jdistill.data.text.sources import read_texts
from jdistill.models.interaction import BRANCHES
from jdistill.retrieval.bm25 import bm25_search
from jdistill.retrieval.mining import QUERIES_PER_BLOCK, Rules, pick


def check_unlabelled(cfg: ConfigDict, imitates: bool) -> None:
    """Raises UserError for queries without labels of a kind of pairs that has no file, and where no term of the loss but CI, which has no
    positive there, reads the judge.

    imitates: whether any term does.
    """
    learnt = imitates and reads_without_positive(cfg)
    for branch in (branch for branch in BRANCHES if cfg[f"unlabelled_{branch}"]):
        argument = f"--config.unlabelled_{branch}={cfg[f'unlabelled_{branch}']}"
        if not cfg[branch]:
            raise UserError(f"{argument} needs --config.{branch}: the passages of its pairs are what it is judged with")
        if not cfg.hard_negatives:
            raise UserError(
                f"{argument} needs --config.hard_negatives above 0: in their place stand the passages to judge"
            )
        if not learnt:
            raise UserError(
                f"{argument}: no term of the loss but CI imitates the judge, so that nothing is learnt from it"
            )


def reads_without_positive(cfg: ConfigDict) -> bool:
    """Whether a term of the loss reads queries without a right passage, as all but CI and that of vectors do, by their hard negatives."""
    return cfg.hard_negatives > 0 and any(cfg.loss[name] for name in ("alpha", "beta", "gamma", "listed", "delta"))


def with_wrong_alone(cfg: ConfigDict, labelled: Candidates, wrong: Queries, mined: bool) -> Candidates:
    """The candidates of a file with those of its queries without a positive behind them: what is labelled wrong, then BM25's best passages,
    in the place of the hard negatives (right ones may be among those, as the judge will say) and easy ones.

    Args:
      labelled: of the queries with a positive; its passages hold those of `wrong` too.
      wrong: data.sets.candidates.without_positive; of none nothing is added.
      mined: whether BM25's take part, as a judge says which of them are right; else what is labelled wrong stands alone.
    """
    if not wrong.texts:
        return labelled
    best = _best_passages(cfg, wrong.texts, labelled.passages) if mined else dict.fromkeys(wrong.texts, [])
    return _behind(labelled, wrong, best, seed=2)


def _behind(labelled: Candidates, queries: Queries, best: dict[str, list[str]], seed: int) -> Candidates:
    """The candidates with those of further queries behind them."""
    more = candidates(queries, [best[query] for query in queries.texts], labelled.passages, labelled.counts, seed)
    columns = np.concatenate([labelled.columns, more.columns])
    return replace(labelled, queries=[*labelled.queries, *queries.texts], columns=columns)


def with_unlabelled(cfg: ConfigDict, branch: str, labelled: Candidates, apart: Sequence[str]) -> Candidates:
    """The candidates of a file with those of cfg.unlabelled_BRANCH behind them: no positives, BM25's best passages in the place of the
    hard negatives (right ones may be among them, as the judge will say) and easy ones.

    Args:
      labelled: of the file's own queries.
      apart: texts that are no such queries: those that the file labels, passages of its dev and test pairs, and those of evaluation sets.

    Raises: UserError for a source that cannot be read, or of which nothing is left.
    """
    key = f"unlabelled_{branch}"
    source = cfg[key]
    if not source:
        return labelled
    elsewhere = set(map(comparable, apart))
    texts = read_texts(source, key=f"config.{key}").texts
    queries = [text for text in texts if comparable(text) not in elsewhere]
    left_out = len(texts) - len(queries)
    queries = queries[: cfg.unlabelled_queries or None]
    best = {query: passages for query, passages in _best_passages(cfg, queries, labelled.passages).items() if passages}
    log.info(
        "%s: %d queries without labels; left out %d that have some or are in what is evaluated, and %d without a word of any passage",
        source, len(best), left_out, len(queries) - len(best),
    )  # fmt: skip
    if not best:
        raise UserError(f"--config.{key}={source}: no query is left")
    nothing: list[list[str]] = [[] for _ in best]
    return _behind(labelled, Queries(list(best), nothing, nothing), best, seed=1)


def _best_passages(cfg: ConfigDict, queries: list[str], passages: list[str]) -> dict[str, list[str]]:
    """Query -> BM25's best passages, within cfg.mining's ranks; none where it has no word of any."""
    rules = Rules(max(cfg.hard_negatives, 1), cfg.mining.first, cfg.mining.last)
    search, _ = bm25_search(queries, passages, min(len(passages), rules.last))
    best: dict[str, list[str]] = {}
    for start in range(0, len(queries), QUERIES_PER_BLOCK):
        stop = min(start + QUERIES_PER_BLOCK, len(queries))
        scores, rows = search(start, stop)
        for i in range(start, stop):
            picked = pick(scores[i - start], rows[i - start], (), np.inf, queries[i], passages, rules)
            best[queries[i]] = [passages[row] for row in picked]
    return best
