"""Labelled pairs: a query and a passage, and whether they belong together, in the splits of their file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.data.text.holdout import comparable, split_held_out
from jdistill.data.text.records import cell_text, has_surplus, records_of
from jdistill.data.text.usable import SURPLUS_CELLS, flaw_of

QUERY_COLUMNS, PASSAGE_COLUMNS = (
    ("sentence1", "question", "query", "sent1"),
    ("sentence2", "sentence", "passage", "sent2"),
)
PAIR_LABEL_COLUMNS = ("label", "labels")
POSITIVE_LABELS = ("entailment", "equivalent", "duplicate", "is_duplicate", "paraphrase", "yes", "true", "1")
NEGATIVE_LABELS = (
    "contradiction", "neutral", "not_entailment", "not_equivalent", "not_duplicate", "not_paraphrase", "no", "false", "0",
)  # fmt: skip
UNLABELLED = ("-", "-1", "")
TRAIN = "train"  # the split that a reader takes to be trained on


@dataclass
class Pairs:
    """N rows. positive[i]: whether passages[i] is right for queries[i]. splits: the file's own names, "" without any. skipped: what
    was left out, by reason."""

    queries: list[str] = field(default_factory=list)
    passages: list[str] = field(default_factory=list)
    positive: list[bool] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def labels(self) -> np.ndarray:
        """bool [N]."""
        return np.array(self.positive, bool)

    def where(self, keep: list[bool]) -> Pairs:
        """The rows that `keep` names."""
        kept = Pairs(skipped=Counter(self.skipped))
        for i in np.flatnonzero(keep):
            kept.queries.append(self.queries[i])
            kept.passages.append(self.passages[i])
            kept.positive.append(self.positive[i])
            kept.splits.append(self.splits[i])
        return kept


def read_pairs(source: str, key: str, splits: Sequence[str] = ()) -> Pairs:
    """Reads columns sentence1 (question, query, sent1), sentence2 (sentence, passage, sent2), label (labels), and split where there is one.

    Sources as triplets have them. splits: of a datasets id, read where it has them all, else its train split. A row may hold lists, as
    MTEB's pair sets (C-MTEB/OCNLI) do: one entry is one pair. A label is one of POSITIVE_LABELS or NEGATIVE_LABELS, in any case, a bool, 0 or 1;
    of a dataset with named classes, the name. A row with an empty or broken text, with more cells than columns, or with a
    label of UNLABELLED, is skipped and counted. Raises UserError for a missing column, another label, and where no row is left.
    """
    pairs = Pairs()
    for where, record in records_of(source, key, splits):
        if has_surplus(record):
            pairs.skipped[f"row {SURPLUS_CELLS.reason}"] += 1
            continue
        for place, first, second, value in _entries(where, record):
            query, passage = ((text or "").strip() for text in (first, second))
            label = _plain(value)
            if flaw := flaw_of(query) or flaw_of(passage):
                pairs.skipped[f"text {flaw}"] += 1
            elif label in UNLABELLED:
                pairs.skipped["without a label"] += 1
            elif label not in POSITIVE_LABELS + NEGATIVE_LABELS:
                raise UserError(
                    f"{place}: the label {value!r} is none of {', '.join(POSITIVE_LABELS)} or {', '.join(NEGATIVE_LABELS)}"
                )
            else:
                pairs.queries.append(query)
                pairs.passages.append(passage)
                pairs.positive.append(label in POSITIVE_LABELS)
                pairs.splits.append(cell_text(record.get("split")))
    if not len(pairs):
        raise UserError(
            f"--{key}={source} holds no usable row; skipped: {dict(pairs.skipped) or 'nothing, it is empty'}"
        )
    return pairs


def _entries(where: str, record: Any) -> Iterator[tuple[str, str | None, str | None, Any]]:
    """(place, first text, second text, label) of a row: one, or, where its cells are lists, one for each entry."""
    if not isinstance(record, dict):
        raise UserError(f"{where}: a row must be an object, not {type(record).__name__}")
    columns = [
        next((name for name in names if name in record), None)
        for names in (QUERY_COLUMNS, PASSAGE_COLUMNS, PAIR_LABEL_COLUMNS)
    ]
    if None in columns:
        raise UserError(
            f"{where}: the columns {' or '.join(QUERY_COLUMNS)}, {' or '.join(PASSAGE_COLUMNS)} and {' or '.join(PAIR_LABEL_COLUMNS)} are needed; "
            f"there are {sorted(map(str, record))}"
        )
    cells = [record[name] for name in columns]
    lists = [isinstance(cell, list) for cell in cells]
    if all(lists):
        if len(set(map(len, cells))) > 1:
            raise UserError(f"{where}: lists of {', '.join(str(len(cell)) for cell in cells)} entries are no pairs")
        rows = [(f"{where}, entry {i}", *entry) for i, entry in enumerate(zip(*cells, strict=True), 1)]
    else:
        rows = [(where, *cells)]
    for place, first, second, label in rows:
        for value in (first, second):
            if not isinstance(value, str | None):
                raise UserError(f"{place}: holds {type(value).__name__} where a text belongs")
        yield place, first, second, label


def train_and_test(pairs: Pairs, train: str, test: str, held_out: int, key: str) -> tuple[Pairs, Pairs]:
    """The rows of the splits `train` and `test`; of a file without splits, all rows of `held_out` queries are the test ones,
    drawn by a hash of the query. Raises UserError for a split that there is not."""
    names = sorted(set(pairs.splits))
    if names != [""]:
        if train == test:
            raise UserError(f"--{key}: train and test are the same split {train!r}; a file's pairs are to be apart")
        for name in (train, test):
            if name not in names:
                raise UserError(
                    f"--{key}: there is no split {name!r}; there are {', '.join(names)} with labelled pairs "
                    "(--config.train_split and --config.test_split name them)"
                )
        if others := {name: pairs.splits.count(name) for name in names if name not in (train, test, TRAIN)}:
            counts = ", ".join(
                f"{count} of {name!r}" if name else f"{count} of no split" for name, count in others.items()
            )
            log.warning("WARNING: --%s: rows of other splits than %r and %r are not read: %s", key, train, test, counts)
        if TRAIN in names and TRAIN not in (train, test):
            log.warning(
                "WARNING: --%s: %d rows of the split %r are not read; training reads %r: --config.train_split=%s takes them", key,
                pairs.splits.count(TRAIN), TRAIN, train, TRAIN,
            )  # fmt: skip
        return pairs.where([name == train for name in pairs.splits]), pairs.where(
            [name == test for name in pairs.splits]
        )
    _, apart = split_held_out(list(dict.fromkeys(pairs.queries)), held_out, seed=0)
    kept_apart = set(apart)
    side = [query in kept_apart for query in pairs.queries]
    if all(side):
        raise UserError(f"--{key}: holding out {held_out} of {len(kept_apart)} queries leaves none to train on")
    return pairs.where([not is_test for is_test in side]), pairs.where(side)


def _plain(label: Any) -> str:
    if isinstance(label, str) and re.fullmatch(
        r"-?\d{1,18}\.0+", label.strip()
    ):  # as pandas writes 1 beside an empty cell
        label = float(label)
    if isinstance(label, bool | int) or (isinstance(label, float) and label.is_integer()):
        return str(int(label)) if abs(label) < 2**63 else "a number of many digits"
    return cell_text(label).lower()


def without(pairs: Pairs, texts: set[str], apart: Pairs) -> tuple[Pairs, int]:
    """The pairs no text of which is among `texts` (as data.text.holdout.comparable has them), and how many were removed.

    apart: pairs that are kept apart: whoever asks one of their queries goes too, and who turns one of them round.
    """
    of_apart = zip(apart.queries, apart.passages, strict=True)
    turned = {(comparable(passage), comparable(query)) for query, passage in of_apart}
    of_query = texts | {query for _, query in turned}
    keep = []
    for query, passage in zip(pairs.queries, pairs.passages, strict=True):
        left, right = comparable(query), comparable(passage)
        keep.append(left not in of_query and right not in texts and (left, right) not in turned)
    return pairs.where(keep), len(keep) - sum(keep)


def sample_pairs(pairs: Pairs, count: int, seed: int) -> Pairs:
    """`count` of the pairs at random; 0, or no more than there are: all."""
    if not count or count >= len(pairs):
        return pairs
    chosen = set(np.random.default_rng([seed, 7]).permutation(len(pairs))[:count].tolist())
    return pairs.where([i in chosen for i in range(len(pairs))])
