"""STS: Spearman and Pearson of a model's cosines with people's scores, on SentEval's seven tasks or on a user's own pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.sets.sts import (
    USUAL_PAIRS,
    StsTask,
    pair_files,
    read_scored_pairs,
    sts_tasks,
)
from jdistill.encoder.pair_scorer import pair_vectors
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.collapse import ALIKE
from jdistill.evals.word_cosines import word_cosines
from jdistill.retrieval.index import row_cosines


class VectorScorer(Protocol):
    """What scores pairs from their vectors: a PairScorer's question, do the two say the same."""

    def of_vectors(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool) -> np.ndarray:
        """The logit of each pair of vectors: two float32 [N, D] to float32 [N].

        Args:
          symmetric: whether the question is if the two say the same.
        """


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation x 100, ties given their mean rank; 0 where undefined (a constant side, one pair).

    x: a model's, float [n]: constant too where it varies by no more than float32 makes of one number. y: float [n].
    """
    if len(x) < 2 or constant(x) or np.ptp(y) == 0:
        return 0.0
    from scipy.stats import spearmanr  # here, since its import takes every command most of a second

    return 100 * float(spearmanr(x, y).statistic)


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation x 100; 0 where undefined, as spearman has it."""
    if len(x) < 2 or constant(x) or np.ptp(y) == 0:
        return 0.0
    return 100 * float(np.corrcoef(x, y, dtype=np.float64)[0, 1])


def constant(x: np.ndarray) -> bool:
    """Whether a model's numbers, float [n], n at least 1, are one but for float32's rounding: the same text in a batch of another width
    has cosines that differ by as much."""
    return bool(np.ptp(x) <= ALIKE * np.abs(x).max())


def evaluate_sts(
    encoder: TextEncoder, folder: Path, scorer: VectorScorer | None = None, words: bool = False
) -> dict[str, Any]:
    """Correlations x 100 of a model's cosines with people's scores on SentEval's tasks.

    Args:
      folder: of SentEval.
      scorer: an interaction module, which adds "sts_by_module": {"spearman": …, "pearson": …} of its logits.
      words: whether "words_sts" stands beside, Spearman of cosines by words alone.

    Returns: "sts": per task Spearman, over all its subsets' pairs concatenated; Avg is the mean of all seven, absent where one is missing.
      "sts_pearson": the same by Pearson. "sts_by_subset": per task each subset's Spearman ("subsets"), their mean, and their mean weighted
      by pairs ("wmean").

    Raises: UserError as sts_tasks.
    """
    tasks = sts_tasks(folder)
    sides = _vectors(encoder, [(subset.left, subset.right) for task in tasks for subset in task.subsets])
    cosines = _by_task(tasks, _cosines(sides))
    by_subset: dict[str, Any] = {}
    for task in tasks:
        single = [spearman(x, subset.gold) for x, subset in zip(cosines[task.name], task.subsets, strict=True)]
        by_subset[task.name] = {
            "mean": float(np.mean(single)),
            "wmean": float(np.average(single, weights=[len(subset.gold) for subset in task.subsets])),
            "subsets": {subset.name: value for subset, value in zip(task.subsets, single, strict=True)},
        }
    figures: dict[str, Any] = {
        "sts": _figures(tasks, cosines, spearman),
        "sts_pearson": _figures(tasks, cosines, pearson),
        "sts_by_subset": by_subset,
    }
    if words:
        figures["words_sts"] = sts_by_words(tasks)
    if scorer is not None:
        left, right = (np.concatenate(side) for side in zip(*sides, strict=True))
        if (
            encoder.prompts
        ):  # a module learnt from vectors by those for queries and documents, of texts that say the same too
            subsets = [subset for task in tasks for subset in task.subsets]
            lefts, rights = ([text for of in subsets for text in getattr(of, side)] for side in ("left", "right"))
            left, right = pair_vectors(encoder, lefts, rights, show_progress=True)
        together = scorer.of_vectors(left, right, symmetric=True)
        logits = _by_task(tasks, np.split(together, np.cumsum([len(of) for of, _ in sides])[:-1]))
        figures["sts_by_module"] = {how.__name__: _figures(tasks, logits, how) for how in (spearman, pearson)}
    return figures


def sts_by_words(tasks: list[StsTask]) -> dict[str, float]:
    """Per task, and Avg, what evaluate_sts has under "sts", of cosines by words alone."""
    cosines = word_cosines([(subset.left, subset.right) for task in tasks for subset in task.subsets])
    return _figures(tasks, _by_task(tasks, cosines), spearman)


def _by_task(tasks: list[StsTask], scores: list[np.ndarray]) -> dict[str, list[np.ndarray]]:
    """The scores of each task's subsets."""
    of_subset = iter(scores)
    return {task.name: [next(of_subset) for _ in task.subsets] for task in tasks}


def _figures(
    tasks: list[StsTask], scores: dict[str, list[np.ndarray]], correlation: Callable[[np.ndarray, np.ndarray], float]
) -> dict[str, float]:
    """task -> correlation of its scores with people's, over all its subsets' pairs; Avg where all seven are there."""
    by_task = {
        task.name: correlation(np.concatenate(scores[task.name]), np.concatenate([of.gold for of in task.subsets]))
        for task in tasks
    }
    return by_task | ({"Avg": float(np.mean(list(by_task.values())))} if len(by_task) == len(USUAL_PAIRS) else {})


def read_ranked_pairs(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """As data.sets.sts.read_scored_pairs. Raises UserError as that does, and where all scores are the same."""
    left, right, gold = read_scored_pairs(path)
    if np.ptp(gold) == 0:
        raise UserError(f"{path}: all {len(gold)} pairs have the score {gold[0]:g}; ranks need different scores")
    return left, right, gold


def ranked_pairs(path: Path) -> dict[str, tuple[list[str], list[str], np.ndarray]]:
    """A file's name -> what read_ranked_pairs reads of it, of a file or of a folder's. Raises UserError as that does and pair_files."""
    return {file.name: read_ranked_pairs(file) for file in pair_files(path)}


def evaluate_pairs_of(encoder: TextEncoder, path: Path) -> dict[str, float]:
    """A file's name -> Spearman x 100 on it, of all that ranked_pairs reads."""
    sets = ranked_pairs(path)
    cosines = _cosines(_vectors(encoder, [(left, right) for left, right, _ in sets.values()]))
    return {name: spearman(x, gold) for x, (name, (_, _, gold)) in zip(cosines, sets.items(), strict=True)}


def pairs_by_words(path: Path) -> dict[str, float]:
    """A file's name -> Spearman x 100 of cosines by words alone, of all that ranked_pairs reads."""
    sets = ranked_pairs(path)
    cosines = [word_cosines([(left, right)])[0] for left, right, _ in sets.values()]
    return {name: spearman(x, gold) for x, (name, (_, _, gold)) in zip(cosines, sets.items(), strict=True)}


def evaluate_pairs(encoder: TextEncoder, path: Path) -> float:
    """Spearman x 100 on a file that read_ranked_pairs reads; of a folder of them the mean over its files, however long they are."""
    return float(np.mean(list(evaluate_pairs_of(encoder, path).values())))


def _vectors(
    encoder: TextEncoder, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two float32 [N, D] for each two lists of N sentences; each distinct sentence is encoded once."""
    place: dict[str, int] = {}
    rows = [[[place.setdefault(text, len(place)) for text in side] for side in sides] for sides in pairs]
    vectors = encoder.encode(list(place), show_progress=True)
    return [(vectors[left], vectors[right]) for left, right in rows]


def _cosines(sides: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """float32 [N] of each two arrays of N vectors."""
    by_side = [row_cosines(left, right) for left, right in sides]
    if all(map(constant, by_side)):
        log.warning("the model gives every pair the same cosine; Spearman is undefined and counted as 0")
    return by_side
