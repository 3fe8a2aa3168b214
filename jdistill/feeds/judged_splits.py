"""Labelled pairs parted into those to train on, dev and test pairs, of each file and of two files against one another."""

from __future__ import annotations

from dataclasses import replace

from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.pairs import Pairs, read_pairs, train_and_test, without
from jdistill.models.interaction import BRANCHES

PairParts = tuple[Pairs, Pairs, Pairs, int]


def split_files(cfg: ConfigDict, evaluation: set[str]) -> dict[str, PairParts]:
    """Branch -> what split_pairs gives of its file, without the queries and pairs that another file keeps apart: one model is trained on all.

    Raises: UserError as split_pairs.
    """
    of_branch = {branch: split_pairs(cfg, branch, evaluation) for branch in BRANCHES if cfg[branch]}
    cleared: dict[str, PairParts] = {}
    for branch, (train, dev, test, removed) in of_branch.items():
        for of_other in (parts for name, parts in of_branch.items() if name != branch):
            for apart in of_other[1:3]:
                train, more = without(train, set(), apart)
                removed += more
            dev, _ = without(dev, set(), of_other[2])
        if len(dev) < len(of_branch[branch][1]):
            dev = _telling(dev, cfg, branch)
        cleared[branch] = train, dev, test, removed
    return cleared


def split_pairs(cfg: ConfigDict, branch: str, evaluation: set[str]) -> PairParts:
    """(training, dev and all test pairs of a branch's file, how many training pairs were removed: those with a text of `evaluation`, with a
    query of the test or of dev, and those that are a pair of theirs turned round, as comparable() has them).

    Raises: UserError for a file that cannot be read, one without test pairs, and one whose test pairs are all right or all wrong.
    """
    source, key = cfg[branch], f"config.{branch}"
    pairs = read_pairs(source, key, (cfg.train_split, cfg.test_split))
    rest, test = train_and_test(pairs, cfg.train_split, cfg.test_split, cfg.held_out_queries, key)
    if not len(test):
        raise UserError(
            f"--{key}={source}: no test pairs; --config.held_out_queries={cfg.held_out_queries} keeps some apart"
        )
    scored = first_pairs(test, cfg.test_pairs)
    if len(set(scored.positive)) < 2:
        unlabelled = pairs.skipped["without a label"]
        raise UserError(
            f"--{key}={source}: all {len(scored)} test pairs that are scored have the same label, so that nothing tells them apart"
            + (
                f"; --config.test_pairs={cfg.test_pairs} takes the first of {len(test)}"
                if len(scored) < len(test)
                else ""
            )
            + (
                f"; {unlabelled} rows labelled -1, - or not at all were passed over: label wrong pairs 0"
                if unlabelled
                else ""
            )
        )
    rest, removed = without(rest, evaluation, test)
    if not len(rest):
        raise UserError(
            f"--{key}={source}: no pair is left to train on: the texts or queries of all {removed} stand in the evaluation sets or the test pairs"
        )
    train, dev = train_and_test(_one_split(rest), "", "", cfg.dev_queries, key)
    dev = _telling(dev, cfg, branch)
    train, of_dev = without(train, set(), dev)
    return train, dev, test, removed + of_dev


def _telling(dev: Pairs, cfg: ConfigDict, branch: str) -> Pairs:
    """The dev pairs of a file, or none, with a warning, where all have one label."""
    if len(dev) and len(set(dev.positive)) < 2:
        log.warning(
            "WARNING: --%s=%s: all %d dev pairs have the same label, which tells no checkpoint from another; none is chosen by them. More of "
            "--config.dev_queries=%d brings others",
            f"config.{branch}",
            cfg[branch],
            len(dev),
            cfg.dev_queries,
        )
        return dev.where([])
    return dev


def _one_split(pairs: Pairs) -> Pairs:
    return replace(pairs, splits=[""] * len(pairs))


def first_pairs(pairs: Pairs, count: int) -> Pairs:
    """The first `count` pairs; 0: all."""
    return pairs.where([i < count for i in range(len(pairs))]) if count else pairs
