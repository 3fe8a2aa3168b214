"""What the two feeds of judged pairs have in common: the dev score, the index, and what is made of the student at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.types import Tree
from jdistill.data.sets.pairs import Pairs
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.pair_labels import average_precision
from jdistill.evals.sets import Options
from jdistill.evals.suite import evaluate
from jdistill.export.interaction import save_interaction
from jdistill.feeds.feed import Feed
from jdistill.feeds.judged import JudgedPairs, read_judged
from jdistill.feeds.judged_results import average_precisions, evaluate_judged, evaluate_questions
from jdistill.feeds.shared import Shared
from jdistill.models.interaction import BRANCHES, interaction_of
from jdistill.models.registry import architecture_of
from jdistill.teachers.judge import Judge
from jdistill.train.method import Method
from jdistill.train.origins import OF_DEV_SETS


@dataclass(frozen=True)
class JudgedFeed(Feed):
    """Rows from files of labelled pairs, which a language model judges."""

    judged_pairs: JudgedPairs

    @property
    def judge(self) -> Judge:
        """The model that judges; its prompts differ by branch, its weights do not."""
        return next(iter(self.judged_pairs.judges.values()))

    def begin(self, before: Feed | None) -> Feed:
        """With the judge as the stage before left it."""
        return replace(self, judged_pairs=before.judged_pairs) if isinstance(before, JudgedFeed) else self

    def origins(self) -> dict[str, str]:
        dev = [file.dev for file in self.judged_pairs.sets if len(file.dev)]
        of_dev = digest(*(side for pairs in dev for side in (pairs.queries, pairs.passages, pairs.labels)))
        return super().origins() | ({OF_DEV_SETS: of_dev} if dev else {})

    def logits(self, cfg: ConfigDict, model: Encoder, params: Tree, branch: str, pairs: Pairs) -> np.ndarray:
        """What the trained model says of labelled pairs, float32 [N]."""
        raise NotImplementedError

    def dev_score(self, cfg: ConfigDict, method: Method) -> Callable[[Tree], dict[str, float]]:
        """The average precision on the dev pairs of each file, and their mean."""

        def score(params: Tree) -> dict[str, float]:
            model, precision = method.trained(params), {}
            for file in (file for file in self.judged_pairs.sets if len(file.dev)):
                z = self.logits(cfg, model, params, file.branch, file.dev)
                precision[file.name] = average_precision(z, file.dev.labels)
            return precision | ({"score": float(np.mean(list(precision.values())))} if precision else {})

        return score

    def ask_for_results(self, cfg: ConfigDict) -> None:
        self.judged_pairs.ask_for_evaluation(cfg)

    def index_texts(self) -> Sequence[str]:
        """The passages of all files, those that answer questions first."""
        files = sorted(self.judged_pairs.sets, key=lambda file: file.branch == BRANCHES[0])
        return list(dict.fromkeys(text for file in files for text in file.passages))

    def pair_scorer(self, cfg: ConfigDict, student: Encoder, params: Tree) -> PairScorer:
        return PairScorer(student, params.get("iem"), interaction_of(cfg))

    def save(self, cfg: ConfigDict, student: Encoder, params: Tree, folder: Path) -> dict[str, float]:
        of_logits = save_interaction(self.pair_scorer(cfg, student, params), folder)
        return {} if of_logits is None else {"logits": of_logits}

    def results(self, cfg: ConfigDict, student: Encoder, params: Tree) -> dict[str, Any]:
        scorer = self.pair_scorer(cfg, student, params)
        figures: dict[str, Any] = {"pairs": evaluate_judged(cfg, self.judged_pairs, scorer)}
        questions = evaluate_questions(self.judged_pairs, scorer, cfg.rescore)
        figures["questions"] = questions["test"]
        # What a choice between runs may look at.
        figures["dev"] = {"ap": average_precisions(self.judged_pairs, scorer), "questions": questions["dev"]}
        if cfg.beir and scorer.params is not None:
            options = Options(scorer, None, cfg.index, cfg.index_effort, cfg.rescore, words=False)
            figures["retrieval_rescored"] = evaluate(student, beir=cfg.beir, options=options)["retrieval"]
        return figures


def judged_pairs_of(shared: Shared) -> JudgedPairs:
    """The files of a run's config. Raises UserError for a teacher that judges no pairs, and a student that is no model of its kind."""
    cfg, model = shared.cfg, shared.teacher.encoder
    if model is None:
        raise UserError(
            f"--config.teacher={cfg.teacher}: a judge of pairs is a language model, and this gives vectors only"
        )
    if cfg.start and not architecture_of(shared.start.config).decoder:  # of a teacher alone read_judged says so
        raise UserError(
            f"--config.start={cfg.start} is a {shared.start.config.model_type}: the student of a judge is a decoder of its kind"
        )
    return read_judged(cfg, model, shared.evaluation_texts)
