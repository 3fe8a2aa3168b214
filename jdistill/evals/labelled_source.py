"""A model on a source of labelled pairs, such as C-MTEB/OCNLI: average precision beside that of a random order, by cosine and by the module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.pairs import Pairs, read_pairs
from jdistill.data.text.hub import dataset_splits
from jdistill.data.text.locations import local_path
from jdistill.encoder.pair_scorer import PairScorer, pair_vectors
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.pair_labels import average_precision, pair_scores
from jdistill.models.interaction import BRANCHES
from jdistill.retrieval.index import row_cosines


@dataclass(frozen=True)
class LabelledSource:
    """test: the pairs that are scored. train: those that choose a threshold, None where nothing was asked of it."""

    name: str
    branch: str
    test: Pairs
    train: Pairs | None


def read_labelled(source: str, branch: str, test_split: str = "", threshold_split: str = "") -> LabelledSource:
    """A source's pairs (data.sets.pairs.read_pairs). branch: symmetric or asymmetric, the module's question, and the flag that named it.

    test_split: of a source with several splits. threshold_split: its pairs choose the threshold of accuracy, F1, precision and recall.
    Of a source without splits both are left aside, and said. Raises UserError for a split that is not named or not there, the same for
    both, and pairs that are all positive or all negative.
    """
    asked = [name for name in (test_split, threshold_split) if name]
    if local_path(source, branch) is None:
        tables = dataset_splits(source, branch)
        if "split" not in next(iter(tables.values())).column_names:
            _check(source, branch, list(tables), test_split, threshold_split)
    pairs = read_pairs(source, branch, asked)
    for reason, count in pairs.skipped.items():
        log.warning("--%s=%s: skipped %d pairs %s", branch, source, count, reason)
    names = sorted(set(pairs.splits))
    if names == [""]:
        if asked:
            log.info("--%s=%s has no splits: all its %d pairs are scored, by no threshold", branch, source, len(pairs))
        test, train = pairs, None
    else:
        _check(source, branch, names, test_split, threshold_split)
        test = _of(pairs, test_split or names[0])
        train = _of(pairs, threshold_split) if threshold_split else None
    for flag, of in ((branch, test), ("threshold_split", train)):
        if of is not None and len(set(of.positive)) < 2:
            named = source if of is test else threshold_split
            raise UserError(
                f"--{flag}={named}: all {len(of)} pairs have the same label, so that nothing tells them apart"
            )
    return LabelledSource(Path(source).stem, branch, test, train)


def evaluate_labelled(
    encoder: TextEncoder, source: LabelledSource, module: PairScorer | None = None
) -> dict[str, dict[str, float]]:
    """ "cosine" and, of a model with an interaction module, "module" -> ap and prior, with training pairs all of evals.pair_labels'
    figures, in percent, and "pairs", how many there are.

    Both texts of a symmetric pair are read by the model's default prompt, those of any other, and of a module, which learnt from such
    vectors, by its prompts for queries and documents.
    """
    figures: dict[str, dict[str, float]] = {}
    test, train = source.test, source.train
    alike = source.branch == BRANCHES[0] and module is None
    sides = [pair_vectors(encoder, of.queries, of.passages, True, alike) for of in (train, test) if of is not None]
    for how in ("cosine",) if module is None else ("cosine", "module"):
        scores = [_scores(how, left, right, source.branch, module) for left, right in sides]
        if train is not None:
            of_scores = pair_scores(scores[0], train.labels, scores[1], test.labels)
        else:
            of_scores = {"ap": average_precision(scores[0], test.labels), "prior": 100 * float(np.mean(test.positive))}
        figures[how] = of_scores | {"pairs": len(test)}
    return figures


def _check(source: str, branch: str, names: Sequence[str], test_split: str, threshold_split: str) -> None:
    """names: of the splits that there are."""
    if not test_split and len(names) > 1:
        raise UserError(
            f"--{branch}={source} has the splits {', '.join(names)}: --test_split names the one that is scored"
        )
    for flag, name in (("test_split", test_split or names[0]), ("threshold_split", threshold_split)):
        if name and name not in names:
            raise UserError(
                f"--{branch}={source}: --{flag}={name} is none of its splits with labelled pairs, {', '.join(names)}"
            )
    if threshold_split == (test_split or names[0]):
        raise UserError(f"--threshold_split={threshold_split} is the test split; a threshold is chosen on other pairs")


def _of(pairs: Pairs, name: str) -> Pairs:
    return pairs.where([split == name for split in pairs.splits])


def _scores(how: str, left: np.ndarray, right: np.ndarray, branch: str, module: PairScorer | None) -> np.ndarray:
    if how == "module" and module is not None:
        return module.of_vectors(left, right, branch == BRANCHES[0])
    return row_cosines(left, right)
