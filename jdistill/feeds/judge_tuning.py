"""Prompts of a judge with their labels: the data by which the judge itself is tuned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.digest import digest
from jdistill.core.folders import replacing
from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable
from jdistill.data.sets.pairs import Pairs
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import peft
from jdistill.feeds.feed import Feed
from jdistill.feeds.judged import JudgedPairs
from jdistill.feeds.judged_feed import JudgedFeed, judged_pairs
from jdistill.feeds.shared import Shared
from jdistill.feeds.tokens import make_batches
from jdistill.models.registry import names_of
from jdistill.train.dataset import Data
from jdistill.train.method import Method


@dataclass(frozen=True)
class JudgeTuning:
    """The labelled pairs of cfg.symmetric and cfg.asymmetric, as prompts."""

    scored = True

    def reads_text(self, there_is: bool) -> bool:
        return False

    def read(self, shared: Shared) -> Feed:
        return TuningFeed(shared, shared.once(judged_pairs))


@dataclass(frozen=True)
class TuningFeed(JudgedFeed):
    """A row is a prompt of the judge."""

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        return prompt_batches(cfg, self.judged)

    def logits(self, cfg: ConfigDict, model: Encoder, params: Tree, branch: str, pairs: Pairs) -> np.ndarray:
        judge = replace(self.judged.judges[branch], model=replace(model, dtype=cfg.teacher_dtype))
        return judge.score(pairs.queries, pairs.passages)[0]

    def after(self, cfg: ConfigDict, method: Method, params: Tree, folder: Path) -> Feed:
        """With the tuned judge, whose adapters are saved as PEFT loads them."""
        if sharding.is_first_process():
            names = {path: name for path, (name, _) in names_of(method.student.config).items()}
            with replacing(folder / "adapter", "adapter", key="the adapter", legacy=("adapter_*",)) as beside:
                peft.save(beside, params["adapters"], cfg.lora.alpha, names)
        return replace(self, judged=self.judged.with_model(method.trained(params)))


def prompt_batches(cfg: ConfigDict, judged: JudgedPairs) -> tuple[TokenTable, Data]:
    """Prompts with their labels: each query's positives, and as many of its hard negatives. Batches have "ids" int32 and "mask" bool
    [n, L], "label" float32 [n]."""
    ids: list[list[int]] = []
    labels: list[float] = []
    for one in judged.sets:
        P, K, _ = one.candidates.counts
        queries, passages = [], []
        for i, row in enumerate(one.candidates.columns):
            right = row[:P][row[:P] >= 0]
            wrong = row[P : P + K][row[P : P + K] >= 0][: len(right)]
            queries += [one.candidates.queries[i]] * (len(right) + len(wrong))
            passages += [one.candidates.passages[j] for j in (*right, *wrong)]
            labels += [1.0] * len(right) + [0.0] * len(wrong)
        ids += judged.judges[one.branch].prompts(queries, passages)
    model, label = next(iter(judged.judges.values())).model, np.array(labels, np.float32)
    tokens = TokenTable(
        np.fromiter((token for row in ids for token in row), np.int32), np.cumsum([0, *map(len, ids)]).astype(np.int64)
    )

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        ids, mask = tokens.padded(rows, width, model.config.pad_token_id)
        return {"ids": ids, "mask": mask, "label": label[rows]}

    fingerprint = digest(tokens.ids, tokens.offsets, label)
    return tokens, Data(make_batches(cfg, tokens.lengths), rows_of, fingerprint, "judgements")
