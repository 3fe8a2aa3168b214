"""A student and its judge on labelled pairs: accuracy and the like at a threshold of the training pairs, average precision, prior."""

from __future__ import annotations

import numpy as np
from ml_collections import ConfigDict

from jdistill.data.sets.pairs import Pairs, drawn
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.pair_labels import pair_scores
from jdistill.feeds.judged import Judged
from jdistill.models.interaction import BRANCHES


def evaluate_judged(cfg: ConfigDict, judged: Judged, student: PairScorer) -> dict[str, dict[str, dict[str, float]]]:
    """file -> "student" and "teacher" -> figures of its test pairs (evals.pair_labels, in percent). The thresholds are those of
    cfg.threshold_pairs training pairs, the same for every seed of a run, so that the judge is asked of them once."""
    found = {}
    for one in judged.sets:
        train = drawn(one.train, cfg.threshold_pairs, seed=0)

        def of_student(pairs: Pairs, symmetric: bool = one.branch == BRANCHES[0]) -> np.ndarray:
            return student.score(pairs.queries, pairs.passages, symmetric)

        found[one.name] = {
            "student": pair_scores(of_student(train), train.labels, of_student(one.test), one.test.labels),
            "teacher": pair_scores(
                judged.judge_scores(cfg, one, train),
                train.labels,
                judged.judge_scores(cfg, one, one.test),
                one.test.labels,
            ),
        }
    return found
