"""The sentences of a run's evaluation sets, which nothing is trained on, and how far its dev pairs are apart from its tests."""

from __future__ import annotations

from collections.abc import Iterator

from ml_collections import ConfigDict

from jdistill.core.fetched import path_here
from jdistill.core.progress import log
from jdistill.data.sets.collections import query_texts
from jdistill.data.sets.sts import pair_files, read_scored_pairs, sts_pairs, sts_sentences
from jdistill.data.text.holdout import comparable


def evaluation_texts(cfg: ConfigDict) -> list[str]:
    """Every sentence of the configured evaluation sets: SentEval's STS test sets, BEIR queries, the dev pairs and queries.

    Says in the log where dev pairs stand in the test sets (dev_pairs_in_tests).
    """
    texts: list[str] = []
    if cfg.senteval:
        texts += sts_sentences(path_here(cfg.senteval, "config.senteval"))
    if cfg.beir:
        texts += query_texts(cfg.beir, "config.beir")
    if cfg.dev_retrieval:
        texts += query_texts(cfg.dev_retrieval, "config.dev_retrieval")
    if cfg.dev_pairs:
        texts += (text for left, right in _dev_pairs(cfg) for side in (left, right) for text in side)
    _tell(dev_pairs_in_tests(cfg))
    return texts


def dev_pairs_in_tests(cfg: ConfigDict) -> dict[str, int]:
    """How far cfg.dev_pairs, by which checkpoints are chosen, are apart from the test sets of cfg.senteval; {} where either is empty.

    Sentences are the same where data.text.holdout compares them so, and pairs in either order.

    Returns: "pairs", how many dev pairs there are; "same_pair", how many are test pairs; "same_sentence", how many others hold a sentence
      of a test set.
    """
    if not (cfg.dev_pairs and cfg.senteval):
        return {}
    tested = [frozenset(map(comparable, pair)) for pair in sts_pairs(path_here(cfg.senteval, "config.senteval"))]
    pairs, sentences = set(tested), frozenset().union(*tested)
    dev = [frozenset(map(comparable, pair)) for sides in _dev_pairs(cfg) for pair in zip(*sides, strict=True)]
    same = sum(pair in pairs for pair in dev)
    holds = sum(not sentences.isdisjoint(pair) for pair in dev)
    return {"pairs": len(dev), "same_pair": same, "same_sentence": holds - same}


def _dev_pairs(cfg: ConfigDict) -> Iterator[tuple[list[str], list[str]]]:
    """The left and the right sentences of each file."""
    return (read_scored_pairs(file)[:2] for file in pair_files(path_here(cfg.dev_pairs, "config.dev_pairs")))


def _tell(counts: dict[str, int]) -> None:
    if counts.get("same_pair"):
        log.warning(
            "WARNING: of the %d dev pairs %d are pairs of the test sets in --config.senteval, and %d others hold a sentence of theirs: a choice "
            "by them is no unseen one for these tests",
            *counts.values(),
        )
    elif counts.get("same_sentence"):
        log.info(
            "of the %d dev pairs %d hold a sentence of the test sets in --config.senteval",
            counts["pairs"],
            counts["same_sentence"],
        )
