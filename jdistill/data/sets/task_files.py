"""Rows of a labelled task from own files, .tsv or .jsonl, or by `datasets`: which columns hold the texts, and what does not fit."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.json_files import parse_json
from jdistill.core.progress import log
from jdistill.data.sets.pairs import POSITIVE_LABELS
from jdistill.data.text.hub import dataset_splits
from jdistill.data.text.readers import reading, refuse_repeated
from jdistill.data.text.records import cell_text
from jdistill.data.text.usable import has_surrogate

LabelledRow = tuple[str, str | None, int]  # a text, the second of a pair, the label's place
LabelledRecord = tuple[str, dict[str, str]]  # where it stands, and its columns

SPLITS = ("train", "dev", "test")
OTHER_DEV = "dev_mismatched"  # MNLI's second dev split, of kinds of text that the training rows have none of
SPLIT_FILES = {"dev": ("dev", "dev_matched")}  # what a split's file is called, where it may be called otherwise
# Pairs first: GLUE's QNLI has a question and a sentence, which alone would be a task of single sentences.
TASK_COLUMNS = (
    ("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"), ("question", "sentence"),
    ("text1", "text2"), ("sentence", None), ("text", None), ("question", None),
)  # fmt: skip
SENTENCE_COLUMNS = {name for pair in TASK_COLUMNS for name in pair if name}
TASK_LABEL_COLUMNS = ("label", "gold_label")
# Of two labels the one that f1 is of: the last, whatever the alphabet says.
F1_LABELS = (*POSITIVE_LABELS, "acceptable")
UNKNOWN_LABELS = ("-", "-1")  # a label that annotators did not agree on, or that a benchmark keeps to itself
MANY_UNLABELLED = 0.05  # share of a split's rows above which they may be a class (SNLI: 0.0014)
CONFIGS = {"snli": "plain_text"}  # of datasets whose config is not called as the task


def read_files(folder: Path) -> tuple[dict[str, list[LabelledRow]], tuple[str, ...]]:
    """(split -> rows, labels) of train, dev and perhaps test and OTHER_DEV. Raises UserError naming file and line."""
    records: dict[str, list[LabelledRecord]] = {}
    for split in (*SPLITS, OTHER_DEV):
        called = SPLIT_FILES.get(split, (split,))
        path = next(
            (p for name in called for p in (folder / f"{name}.tsv", folder / f"{name}.jsonl") if p.is_file()), None
        )
        if path is not None:
            records[split] = list(_tsv(path) if path.suffix == ".tsv" else _jsonl(path))
        elif split in ("train", "dev"):
            raise UserError(f"{folder} holds no {' or '.join(called)} as .tsv or .jsonl")
    return labelled_rows(records)


def read_dataset(
    name: str, source: str, key: str = "config.task_dir"
) -> tuple[dict[str, list[LabelledRow]], tuple[str, ...]]:
    """The same of GLUE and what is laid out like it, without a test split; mnli with both its dev splits. Labels go by their names.

    key: the flag of the source, for messages.
    """
    splits = dataset_splits(f"{source}:{CONFIGS.get(name, name)}", key)
    theirs = {"train": "train", "dev": "validation"}
    if "validation_matched" in splits:
        theirs |= {"dev": "validation_matched", OTHER_DEV: "validation_mismatched"}
    names = getattr(splits["train"].features.get("label"), "names", None) if "train" in splits else None
    records: dict[str, list[LabelledRecord]] = {}
    for split, called in theirs.items():
        if called not in splits:
            raise UserError(f"--{key}={source}: the dataset has no split {called!r}; it has {', '.join(splits)}")
        records[split] = [
            (where := f"{source} ({name}), {called}, row {i}", _with_label_named(row, names, where))
            for i, row in enumerate(splits[called])
        ]
    return labelled_rows(records)


def _with_label_named(row: dict[str, Any], names: Sequence[str] | None, where: str) -> dict[str, str]:
    """A row's values as strings, its label's number as the name that the dataset has for it; below 0 it has none."""
    strings = _as_strings(row, where)
    label = row.get("label")
    return strings | {"label": names[label]} if names and label is not None and label >= 0 else strings


def labelled_rows(records: dict[str, list[LabelledRecord]]) -> tuple[dict[str, list[LabelledRow]], tuple[str, ...]]:
    """Records as rows, by the columns of the first training record. A test split without labels is left out, and said.

    Raises: UserError for columns that are not there, a row that does not fit, and training rows of fewer than two labels.
    """
    where, first = records["train"][0] if records["train"] else ("train", {})
    pair = next(((a, b) for a, b in TASK_COLUMNS if a in first and (b is None or b in first)), None)
    label = next((name for name in TASK_LABEL_COLUMNS if name in first), None)
    if pair is None or label is None:
        raise UserError(
            f"{where}: the columns sentence (or sentence1, sentence2) and label are needed; there are {sorted(first)}"
        )
    records = {
        split: [(where, row | {label: (row.get(label) or "").strip()}) for where, row in of_split]
        for split, of_split in records.items()
    }
    labels = _in_order(
        {row[label] for _, row in records["train"] if row.get(label) and row[label] not in UNKNOWN_LABELS}
    )
    if "test" in records and not any(row.get(label) and row[label] not in UNKNOWN_LABELS for _, row in records["test"]):
        log.info("the test split has no labels and is left out; dev stands in its place")
        del records["test"]
    rows: dict[str, list[LabelledRow]] = {}
    for split, split_records in records.items():
        labelled = [(where, row) for where, row in split_records if row.get(label) not in UNKNOWN_LABELS]
        if (left_out := len(split_records) - len(labelled)) > MANY_UNLABELLED * len(split_records):
            named = " or ".join(UNKNOWN_LABELS)
            log.warning(
                "WARNING: %s: %d of %d rows are labelled %s, which means no label, and are left out; where that is a class, give it another name",
                split, left_out, len(split_records), named,
            )  # fmt: skip
        elif left_out:
            log.info("%s: %d rows without a label are left out", split, left_out)
        rows[split] = [_row(row, pair, label, labels, where) for where, row in labelled]
    if len(labels) < 2:
        passed_over = len(records["train"]) - len(rows["train"])
        raise UserError(
            f"{where} and on: the training rows have {f'one label, {labels[0]!r}' if labels else 'no label'}, and a task tells two or more apart"
            + (
                f"; {passed_over} rows labelled {' or '.join(UNKNOWN_LABELS)} count as unlabelled: where that is a class, name it 0"
                if passed_over
                else ""
            )
        )
    return rows, labels


def _in_order(labels: Iterable[str]) -> tuple[str, ...]:
    ordered = sorted(labels)
    return tuple(ordered[::-1] if len(ordered) == 2 and ordered[0].lower() in F1_LABELS else ordered)


def _row(
    row: dict[str, str], columns: tuple[str, str | None], label: str, labels: tuple[str, ...], where: str
) -> LabelledRow:
    first, second = columns
    if not row.get(first, "").strip():
        raise UserError(f"{where}: an empty sentence" if first in row else f"{where}: {first} is missing")
    if second is not None and not row.get(second, "").strip():
        raise UserError(f"{where}: the pair's {second} is missing")
    for column in filter(None, columns):
        if has_surrogate(row[column]):
            raise UserError(f"{where}: {column} is a text with a lone surrogate; remove the row")
    return row[first].strip(), row[second].strip() if second else None, label_of(row.get(label, ""), labels, where)


def label_of(value: str, labels: tuple[str, ...], where: str) -> int:
    """Its place among the labels. Raises UserError for one that is none of them."""
    if value not in labels:
        raise UserError(f"{where}: label {value!r} is not one of {', '.join(labels)}")
    return labels.index(value)


def _tsv(path: Path) -> Iterator[LabelledRecord]:
    before = csv.field_size_limit(2**31 - 1)
    where = f"{path}, line 1"
    try:
        with reading(path), open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            refuse_repeated(f"{path} line 1", header := reader.fieldnames or (), filter(str.strip, header))
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if None in row:
                    raise UserError(f"{where}: more columns than the header's {len(reader.fieldnames or ())}")
                yield where, {key: value or "" for key, value in row.items()}
    except csv.Error as error:
        raise UserError(f"{where}: not valid TSV after this line ({error})") from None
    finally:
        csv.field_size_limit(before)


def _jsonl(path: Path) -> Iterator[LabelledRecord]:
    with reading(path), open(path, encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path}, line {number}", _strings(line, f"{path}, line {number}")


def _strings(line: str, where: str) -> dict[str, str]:
    row: Any = parse_json(line, where)
    if not isinstance(row, dict):
        raise UserError(f"{where} is no JSON object: {line.strip()[:60]}")
    return _as_strings(row, where)


def _as_strings(row: dict[str, Any], where: str) -> dict[str, str]:
    for key, value in row.items():
        if key in SENTENCE_COLUMNS and not isinstance(value, str | None):
            raise UserError(f"{where}: {key!r} holds {type(value).__name__}, not text")
    return {key: cell_text(value) for key, value in row.items()}
