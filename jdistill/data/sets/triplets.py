"""Labelled triplets: an anchor (or query), its positive and some negatives, from a file, a folder or a datasets id."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.json_files import parse_json
from jdistill.data.batching.batches import TokenTable
from jdistill.data.batching.layout import Layout
from jdistill.data.batching.packing import pack_parts
from jdistill.data.sets.passage_scores import read_scores
from jdistill.data.text.holdout import comparable
from jdistill.data.text.records import has_surplus, records_of
from jdistill.data.text.usable import SURPLUS_CELLS, flaw_of

ANCHORS = ("anchor", "query")
LISTED = "negatives"
NEGATIVES = ("negative", LISTED)
NUMBERED = re.compile(r"negative_(\d{1,9})")


@dataclass
class Triplets:
    """N rows: anchors[i] goes with positives[i] and not with negatives[i]. skipped: what was left out, by reason. scores[i]: of positives[i]
    and each of negatives[i], a reranker's; no row where the source has none."""

    anchors: list[str] = field(default_factory=list)
    positives: list[str] = field(default_factory=list)
    negatives: list[list[str]] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    scores: list[list[float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.anchors)


def read_triplets(source: str, key: str = "config.triplets", with_scores: bool = True) -> Triplets:
    """Reads columns anchor or query, positive, and negative (a string), negatives (a list, in a table of text a JSON list, or a string) or
    negative_1, negative_2 …, where there are any, and, where they are asked for, scores (data.sets.passage_scores), which all rows have or none.

    Files .jsonl, .csv, .tsv and .parquet, folders of those, datasets ids (owner/name or owner/name:subset, the train
    split). A row whose anchor or positive is empty or broken is skipped, and one with more cells than columns; and so is, alone, such a
    negative and one that equals the anchor or the positive. Raises UserError for a missing column, a value of another kind, a damaged file,
    and where no row is left.
    """
    triplets = Triplets()
    _add_all(triplets, records_of(source, key), with_scores)
    if not len(triplets):
        raise UserError(
            f"--{key}={source} holds no usable row; skipped: {dict(triplets.skipped) or 'nothing, it is empty'}"
        )
    return triplets


def _add_all(triplets: Triplets, records: Iterable[tuple[str, Any]], with_scores: bool) -> None:
    first = None  # row, and whether it has scores
    for where, record in records:
        if has_surplus(record):
            triplets.skipped[f"row {SURPLUS_CELLS.reason}"] += 1
            continue
        anchor, positive, *negatives = texts = _texts_of(where, record)
        scores = read_scores(record, len(texts) - 1, where) if with_scores else None
        first = first or (where, scores is not None)
        if first[1] != (scores is not None):
            has, lacks = (first[0], where) if first[1] else (where, first[0])
            raise UserError(f"{lacks} has no scores, and {has} has: all rows need them, or none")
        if flaw := flaw_of(anchor):
            triplets.skipped[f"{next(name for name in ANCHORS if name in record)} {flaw}"] += 1
        elif flaw := flaw_of(positive):
            triplets.skipped[f"positive {flaw}"] += 1
        else:
            kept: dict[str, int] = {}  # negatives, and their places among the passages
            for place, negative in enumerate(negatives, 1):
                flaw = flaw_of(negative) or ("that is the anchor or positive" if negative in (anchor, positive) else "")
                flaw = flaw or ("repeated in its row" if negative in kept else "")
                if flaw:
                    triplets.skipped[f"negative {flaw}"] += 1
                else:
                    kept[negative] = place
            triplets.anchors.append(anchor)
            triplets.positives.append(positive)
            triplets.negatives.append(list(kept))
            if scores is not None:
                triplets.scores.append([scores[place] for place in (0, *kept.values())])


def _texts_of(where: str, record: Any) -> list[str]:
    """The anchor, the positive and the negatives of a row, stripped; "" for one that is null in a list."""
    if not isinstance(record, dict):
        raise UserError(f"{where}: a row must be an object with anchor and positive, not {type(record).__name__}")
    anchor_column = next((name for name in ANCHORS if name in record), None)
    if anchor_column is None or "positive" not in record:
        raise UserError(
            f"{where}: the columns anchor (or query) and positive are needed; there are {sorted(map(str, record))}"
        )
    numbered = sorted((int(match[1]), name) for name in record if name and (match := NUMBERED.fullmatch(str(name))))
    negatives: list[Any] = []
    for name in (*NEGATIVES, *(name for _, name in numbered)):
        value = record.get(name)
        if name == LISTED and isinstance(value, str) and value.lstrip().startswith("["):
            value = _json_list(value, where)
        negatives += value if isinstance(value, list) else [] if value is None else [value]
    texts = [record[anchor_column], record["positive"], *negatives]
    for value in texts:
        if not isinstance(value, str | None):
            raise UserError(f"{where}: holds {type(value).__name__} where a text belongs")
    return [(text or "").strip() for text in texts]


def _json_list(value: str, where: str) -> list[str | None]:
    """The texts of a cell that is a list, as a table of text has it."""
    try:
        texts = parse_json(value, where)
    except UserError:
        texts = None
    if not isinstance(texts, list) or not all(isinstance(text, str | None) for text in texts):
        raise UserError(
            f'{where}: {LISTED} begins with [ and is no JSON list of texts, such as ["one", "another"] (what pandas writes, [\'one\'], is not '
            "JSON: json.dumps makes it so); a single text belongs in a column negative"
        )
    return texts


def remove_evaluation_rows(triplets: Triplets, evaluation: Iterable[str]) -> Triplets:
    """Without the rows any text of which an evaluation sentence equals (data.text.holdout.comparable); they are counted."""
    forbidden = {comparable(text) for text in evaluation}
    kept = Triplets(skipped=Counter(triplets.skipped))
    rows = zip(triplets.anchors, triplets.positives, triplets.negatives, strict=True)
    for i, (anchor, positive, negatives) in enumerate(rows):
        if forbidden and not forbidden.isdisjoint(map(comparable, (anchor, positive, *negatives))):
            kept.skipped["evaluation text"] += 1
            continue
        kept.anchors.append(anchor)
        kept.positives.append(positive)
        kept.negatives.append(negatives)
        kept.scores += triplets.scores[i : i + 1]
    return kept


@dataclass(frozen=True)
class TripletTokens:
    """Tokens of N triplets with K negatives each: column 0 the anchor, 1 the positive, 2 … K+1 the negatives. With scores, where a loss reads
    them."""

    anchors: TokenTable  # N texts, by the query prompt
    passages: TokenTable  # positives and negatives, each text once, by the passage prompt
    columns: np.ndarray  # int64 [N, K + 1], rows of `passages`; -1: this triplet has no such negative
    anchor_texts: (
        np.ndarray
    )  # int64 [N], equal for equal anchors; of one that is a passage too, its row there (same_texts)
    scores: np.ndarray | None = None  # float32 [N, K + 1], of each passage

    @property
    def lengths(self) -> np.ndarray:
        """The longest text of each triplet, in tokens: int64 [N]."""
        return self.text_lengths.max(1)

    @cached_property
    def text_lengths(self) -> np.ndarray:
        """Tokens of each text, int64 [N, K + 2], -1 where there is none."""
        of_passage = np.append(self.passages.lengths, -1)  # the last one for -1
        return np.concatenate([self.anchors.lengths[:, None], of_passage[self.columns]], axis=1)

    @cached_property
    def _all(self) -> TokenTable:
        """The anchors' tokens, and behind them the passages', in memory as the triplets themselves are."""
        return self.anchors.joined(self.passages)

    def padded(self, rows: np.ndarray, width: int, pad_id: int) -> dict[str, np.ndarray]:
        """ids int32 and mask bool [n, K+2, width]; real bool [n, K+2], false for a negative that is not there; texts int32
        [n, K+2]: numbers that are equal for equal texts, the anchor's in column 0; scores float32 [n, K+1], where
        there are some."""
        columns = self.columns[rows]
        anchor_ids, anchor_mask = self.anchors.padded(rows, width, pad_id)
        ids, mask = self.passages.padded(np.maximum(columns, 0).ravel(), width, pad_id)
        ids, mask = ids.reshape(*columns.shape, width), mask.reshape(*columns.shape, width)
        there = columns >= 0
        return {
            "ids": np.concatenate([anchor_ids[:, None], np.where(there[..., None], ids, pad_id)], axis=1),
            "mask": np.concatenate([anchor_mask[:, None], mask & there[..., None]], axis=1),
        } | self._about(rows)

    def packed(self, rows_nxg: np.ndarray, layout: Layout, pad_id: int) -> dict[str, np.ndarray]:
        """n groups of g triplets whose texts stand in common rows (data.batching.packing.pack_parts), what padded has beside the tokens,
        [n, g, ...] in the place of [n, ...], and which triplets they are, since their order depends on the groups: row int32 [n, g]."""
        columns = self.columns[rows_nxg]
        passages = np.where(columns < 0, -1, columns + len(self.anchors))
        of_row = {name: x.reshape(*rows_nxg.shape, -1) for name, x in self._about(rows_nxg.ravel()).items()}
        texts = np.concatenate([rows_nxg[..., None], passages], axis=2)
        return pack_parts(self._all, texts, layout, pad_id) | of_row | {"row": rows_nxg.astype(np.int32)}

    def _about(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """real, texts and scores, as padded has them."""
        return self.which(rows) | ({} if self.scores is None else {"scores": self.scores[rows]})

    def which(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """real and texts, as padded has them."""
        columns = self.columns[rows]
        return {
            "real": np.concatenate([np.ones((len(rows), 1), bool), columns >= 0], axis=1),
            "texts": np.concatenate([self.anchor_texts[rows, None], columns], axis=1).astype(np.int32),
        }


def same_texts(texts: Sequence[str], among: Sequence[str]) -> np.ndarray:
    """A number for each text, int64 [N], equal for equal texts, and for one of `among`, which are distinct, its place there."""
    first = {text: i for i, text in enumerate(among)}
    return np.array([first.setdefault(text, len(among) + i) for i, text in enumerate(texts)], np.int64)


def passage_columns(triplets: Triplets, negatives: int) -> tuple[list[str], np.ndarray]:
    """The distinct passages, and for each triplet the rows of its positive and first `negatives` negatives, -1 if fewer."""
    row_of: dict[str, int] = {}
    columns = np.full((len(triplets), negatives + 1), -1, np.int64)
    for i, (positive, of_row) in enumerate(zip(triplets.positives, triplets.negatives, strict=True)):
        for j, text in enumerate([positive, *of_row[:negatives]]):
            columns[i, j] = row_of.setdefault(text, len(row_of))
    return list(row_of), columns


def score_columns(triplets: Triplets, negatives: int) -> np.ndarray:
    """The scores of the passages in passage_columns, float32 [N, negatives + 1]; 0 where there is no passage."""
    columns = np.zeros((len(triplets), negatives + 1), np.float32)
    for row, scores in zip(columns, triplets.scores, strict=True):
        row[: len(scores)] = scores[: negatives + 1]
    return columns
