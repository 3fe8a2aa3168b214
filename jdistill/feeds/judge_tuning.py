"""Prompts of a judge with their labels: the data by which the judge itself is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.folders import replacing
from jdistill.core.types import Tree
from jdistill.data.batching.batches import TokenTable
from jdistill.data.sets.pairs import Pairs
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import peft
from jdistill.feeds.feed import Feed
from jdistill.feeds.judged import JudgedPairs, JudgedSet
from jdistill.feeds.judged_feed import JudgedFeed, judged_pairs_of
from jdistill.feeds.shared import Shared
from jdistill.feeds.tokens import make_batches
from jdistill.models.precision import settled_dtype
from jdistill.train.dataset import Data
from jdistill.train.method import Method

PROMPTS = ("labelled", "drawn")


@dataclass(frozen=True)
class JudgeTuning:
    """The labelled pairs of cfg.symmetric and cfg.asymmetric, as prompts."""

    dev_keys = ("dev_queries",)

    def reads_text(self, there_is: bool) -> bool:
        return False

    def read(self, shared: Shared) -> Feed:
        return TuningFeed(shared, shared.once(judged_pairs_of))


@dataclass(frozen=True)
class TuningFeed(JudgedFeed):
    """A row is a prompt of the judge."""

    def beginnings(self, cfg: ConfigDict) -> tuple[np.ndarray, np.ndarray]:
        """The instructions that the prompts begin with, a row for each file: ids int32 [n, P], and their mask, bool [n, P]."""
        return padded_beginnings(cfg, self.judged_pairs)

    def answer_rows(self) -> np.ndarray:
        """The output layer's rows of yes and no behind each file's prompts, in the order of beginnings, float32 [n, 2, D]."""
        return np.stack([judge.answer_rows for judge in self.judged_pairs.judges.values()])

    def batches(self, cfg: ConfigDict, student: Encoder, made_up: bool = False) -> tuple[TokenTable, Data]:
        return prompt_batches(cfg, self.judged_pairs)

    def own_texts(self, cfg: ConfigDict, student: Encoder) -> Sequence[tuple[Encoder, Sequence[str]]]:
        return ()  # the student reads none of it

    def logits(self, cfg: ConfigDict, model: Encoder, params: Tree, branch: str, pairs: Pairs) -> np.ndarray:
        judge = replace(self.judged_pairs.judges[branch], model=replace(model, dtype=settled_dtype(cfg.teacher_dtype)))
        return judge.score(pairs.queries, pairs.passages)[0]

    def after(self, cfg: ConfigDict, method: Method, params: Tree, folder: Path) -> Feed:
        """With the tuned judge, whose adapters are saved as PEFT loads them."""
        if sharding.is_first_process():
            names = peft.torch_names(method.student.config)
            with replacing(folder / "adapter", "adapter", key="the adapter", legacy=("adapter_*",)) as beside:
                peft.save_adapters(beside, params["adapters"], cfg.lora.alpha, names)
        return replace(self, judged_pairs=self.judged_pairs.with_model(method.trained(params)))


def drawn_pairs(judged_set: JudgedSet) -> tuple[list[str], list[str], list[float]]:
    """(queries, passages, labels) after Appendix D: each query's positives among its candidates (the paper: all of them), and as many of
    its hard negatives."""
    (P, K, _), of_set = judged_set.candidates.counts, judged_set.candidates
    queries, passages, labels = [], [], []
    for i, row in enumerate(of_set.columns):
        right = row[:P][row[:P] >= 0]
        wrong = row[P : P + K][row[P : P + K] >= 0][: len(right)]
        queries += [of_set.queries[i]] * (len(right) + len(wrong))
        passages += [of_set.passages[j] for j in (*right, *wrong)]
        labels += [1.0] * len(right) + [0.0] * len(wrong)
    return queries, passages, labels


def labelled_pairs(judged_set: JudgedSet, every: bool) -> tuple[list[str], list[str], list[float]]:
    """The same of all labelled pairs, those of queries without a positive too; every: else of the candidates' queries alone."""
    asked = set(judged_set.candidates.queries)
    train = judged_set.train.where([every or query in asked for query in judged_set.train.queries])
    return train.queries, train.passages, [float(label) for label in train.labels]


def padded_beginnings(cfg: ConfigDict, judged_pairs: JudgedPairs) -> tuple[np.ndarray, np.ndarray]:
    """What each judge's prompts begin with, before the query, in the order of the judges: as TuningFeed.beginnings."""
    beginnings = table_of_lists([judge.pieces[0] for judge in judged_pairs.judges.values()])
    width = round_up(max(1, int(beginnings.lengths.max())), cfg.length_multiple)
    pad_id = next(iter(judged_pairs.judges.values())).model.config.pad_token_id
    return beginnings.padded(np.arange(len(judged_pairs.judges)), width, pad_id)


def prompt_batches(cfg: ConfigDict, judged_pairs: JudgedPairs) -> tuple[TokenTable, Data]:
    """Prompts of a judge with their labels, as cfg.tune.prompts names them.

    Args:
      judged_pairs: the files, each with its candidates.

    Returns: the prompts' tokens, and Data of {"ids": int32 [n, L], "mask": bool [n, L], what follows a prompt's beginning; "beginning": int32 [n],
      which of padded_beginnings that is; "label": float32 [n], 1 or 0}. The order is that of whole prompts by their lengths.
    """
    prompts: list[list[int]] = []
    labels: list[float] = []
    beginning: list[int] = []
    for judged_set in judged_pairs.sets:
        every = not cfg.max_queries
        drawn = cfg.tune.prompts == "drawn"
        queries, passages, of_set = drawn_pairs(judged_set) if drawn else labelled_pairs(judged_set, every)
        labels += of_set
        beginning += [list(judged_pairs.judges).index(judged_set.branch)] * len(of_set)
        prompts += judged_pairs.judges[judged_set.branch].prompts(queries, passages)
    model = next(iter(judged_pairs.judges.values())).model
    label, which = np.array(labels, np.float32), np.array(beginning, np.int32)
    shared = [len(judge.pieces[0]) for judge in judged_pairs.judges.values()]
    tokens = table_of_lists(prompts)
    rests = table_of_lists([prompt[shared[i] :] for prompt, i in zip(prompts, beginning, strict=True)])

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        L = round_up(width - min(shared), cfg.length_multiple)
        ids, mask = rests.padded(rows, L, model.config.pad_token_id)
        return {"ids": ids, "mask": mask, "beginning": which[rows], "label": label[rows]}

    if len(label) < cfg.batch_size:  # of the stage: tune.batch_size
        raise UserError(
            f"{len(label)} prompts with labels do not fill one batch of tune.batch_size={cfg.batch_size}; lower --config.tune.batch_size, or "
            "bring more labelled pairs"
        )
    fingerprint = digest(tokens.ids, tokens.offsets, label)
    return tokens, Data(make_batches(cfg, tokens.lengths), rows_of, fingerprint, "judgements")


def table_of_lists(texts: Sequence[Sequence[int]]) -> TokenTable:
    """Token ids of texts as one table, in memory."""
    ids = np.fromiter((token for text in texts for token in text), np.int32)
    return TokenTable(ids, np.cumsum([0, *map(len, texts)]).astype(np.int64))


def round_up(tokens: int, multiple: int) -> int:
    """The least multiple that holds so many tokens."""
    return -(-tokens // multiple) * multiple
