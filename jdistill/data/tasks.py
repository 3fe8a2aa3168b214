"""Labelled sentences and sentence pairs: SentEval's layouts, a folder of .tsv or .jsonl splits, or GLUE by `datasets`. numpy only."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from jdistill.errors import UserError

SPLITS = ("train", "dev", "test")
DEV_SHARE, TEST_SHARE = 0.1, 0.1  # of a task that comes without these splits, drawn by the seed
FIRST, SECOND = (
    ("sentence1", "sentence", "question1", "question", "premise", "text"),
    ("sentence2", "question2", "hypothesis"),
)
GLUE_SECOND = {"qnli": "sentence"}  # whose first is its question


@dataclass(frozen=True)
class Split:
    """texts: [N]. others: the second of each pair, None for single sentences. labels: int32 [N], places in Task.labels."""

    texts: list[str]
    others: list[str] | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, which: np.ndarray) -> Split:
        """These rows alone."""
        others = None if self.others is None else [self.others[i] for i in which]
        return Split([self.texts[i] for i in which], others, self.labels[which])


@dataclass(frozen=True)
class Task:
    """labels: their names. metrics: of evals.classify. f1 is of the last label, the positive one, of two."""

    name: str
    labels: tuple[str, ...]
    train: Split
    dev: Split
    test: Split | None
    metrics: tuple[str, ...] = ("accuracy",)

    @property
    def pairs(self) -> bool:
        return self.train.others is not None


def read_task(name: str, source: str, seed: int = 0, label_fraction: float = 1.0) -> Task:
    """A task by name from a SentEval folder, a folder with train and dev as .tsv or .jsonl, or a datasets id such as nyu-mll/glue.

    label_fraction: of the training rows, drawn by the seed, that are kept. Raises UserError naming file and line for a layout that
    is not known, a label outside the set, an empty sentence, a pair with one side, and a class without a training row.
    """
    if not 0 < label_fraction <= 1:
        raise UserError(f"--config.label_fraction={label_fraction} must lie above 0 and at most at 1")
    folder = Path(source)
    if not folder.is_dir():
        task = _from_datasets(name, source)
    elif any((folder / f"train{suffix}").is_file() for suffix in (".tsv", ".jsonl")):
        task = _from_splits(name, folder)
    elif name in SENTEVAL:
        task = SENTEVAL[name](name, folder, seed)
    else:
        raise UserError(
            f"--config.task={name}: {folder} holds no train.tsv or train.jsonl, and SentEval's layout is known of {', '.join(SENTEVAL)}"
        )
    if label_fraction < 1:
        kept = np.random.default_rng([seed, 7]).permutation(len(task.train))[
            : max(1, round(label_fraction * len(task.train)))
        ]
        task = replace(task, train=task.train.rows(np.sort(kept)))
    absent = [label for i, label in enumerate(task.labels) if not (task.train.labels == i).any()]
    if absent:
        raise UserError(
            f"task {name}: no training row has the label {', '.join(absent)} ({len(task.train)} rows of {source})"
        )
    return task


def _lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[tuple[int, str]]:
    if not path.is_file():
        raise UserError(f"{path} is missing: --config.task_dir is not laid out as SentEval has it")
    with open(path, encoding=encoding, newline="\n") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not {encoding} ({error})") from None


def _label(value: str, labels: tuple[str, ...], where: str) -> int:
    if value not in labels:
        raise UserError(f"{where}: label {value!r} is not one of {', '.join(labels)}")
    return labels.index(value)


def _text(value: str, where: str) -> str:
    if not value.strip():
        raise UserError(f"{where}: an empty sentence")
    return value.strip()


def _split(rows: list[tuple[str, str | None, int]]) -> Split:
    others = [other for _, other, _ in rows if other is not None]
    return Split([text for text, _, _ in rows], others or None, np.array([label for _, _, label in rows], np.int32))


def _parted(whole: Split, seed: int, test: bool) -> list[Split]:
    """dev, (test,) and the rest of rows that come without splits."""
    order = np.random.default_rng([seed, 5]).permutation(len(whole))
    counts = [round(DEV_SHARE * len(whole)), *([round(TEST_SHARE * len(whole))] if test else [])]
    ends = np.cumsum(counts)
    return [whole.rows(np.sort(part)) for part in np.split(order, ends)]


def _sst(name: str, folder: Path, seed: int) -> Task:
    labels = ("0", "1")
    found = {}
    for split in SPLITS:
        path = folder / "SST" / "binary" / f"sentiment-{split}"
        rows: list[tuple[str, str | None, int]] = []
        for number, line in _lines(path):
            text, tab, label = line.rpartition("\t")
            if not tab:
                raise UserError(f"{path}, line {number}: a sentence, a tab and 0 or 1 belong here: {line[:60]!r}")
            rows.append(
                (_text(text, f"{path}, line {number}"), None, _label(label.strip(), labels, f"{path}, line {number}"))
            )
        found[split] = _split(rows)
    return Task(name, ("negative", "positive"), found["train"], found["dev"], found["test"])


def _mrpc(name: str, folder: Path, seed: int) -> Task:
    found = {}
    for split in ("train", "test"):
        path = folder / "MRPC" / f"msr_paraphrase_{split}.txt"
        rows: list[tuple[str, str | None, int]] = []
        for number, line in _lines(path):
            if number == 1:  # the header
                continue
            cells, where = line.split("\t"), f"{path}, line {number}"
            if len(cells) != 5:
                raise UserError(f"{where}: {len(cells)} columns, not label, two numbers and two sentences")
            rows.append((_text(cells[3], where), _text(cells[4], where), _label(cells[0], ("0", "1"), where)))
        found[split] = _split(rows)
    dev, train = _parted(found["train"], seed, test=False)
    return Task(name, ("different", "paraphrase"), train, dev, found["test"], ("accuracy", "f1"))


def _trec(name: str, folder: Path, seed: int) -> Task:
    labels = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    found = []
    for file in ("train_5500.label", "TREC_10.label"):
        path = folder / "TREC" / file
        rows: list[tuple[str, str | None, int]] = []
        for number, line in _lines(path, "latin-1"):
            kind, _, question = line.partition(" ")
            where = f"{path}, line {number}"
            rows.append((_text(question, where), None, _label(kind.partition(":")[0], labels, where)))
        found.append(_split(rows))
    dev, train = _parted(found[0], seed, test=False)
    return Task(name, labels, train, dev, found[1])


def _two_files(sub: str, negative: str, positive: str) -> Callable[[str, Path, int], Task]:
    """A reader of a folder with one file a label."""

    def read(name: str, folder: Path, seed: int) -> Task:
        rows: list[tuple[str, str | None, int]] = []
        for label, file in enumerate((negative, positive)):
            path = folder / sub / file
            rows += [(_text(line, f"{path}, line {n}"), None, label) for n, line in _lines(path, "latin-1")]
        dev, test, train = _parted(_split(rows), seed, test=True)
        return Task(name, (negative.rpartition(".")[2], positive.rpartition(".")[2]), train, dev, test)

    return read


SENTEVAL = {
    "sst2": _sst,
    "mrpc": _mrpc,
    "trec": _trec,
    "mr": _two_files("MR", "rt-polarity.neg", "rt-polarity.pos"),
    "cr": _two_files("CR", "custrev.neg", "custrev.pos"),
    "subj": _two_files("SUBJ", "subj.objective", "subj.subjective"),
    "mpqa": _two_files("MPQA", "mpqa.neg", "mpqa.pos"),
}


def _from_splits(name: str, folder: Path) -> Task:
    """train, dev and perhaps test, each .tsv with a header or .jsonl: sentence and label, or sentence1, sentence2 and label."""
    records: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for split in SPLITS:
        path = next((p for p in (folder / f"{split}.tsv", folder / f"{split}.jsonl") if p.is_file()), None)
        if path is None:
            if split != "test":
                raise UserError(f"{folder} holds no {split}.tsv or {split}.jsonl")
            continue
        records[split] = list(_records(path))
    labels = tuple(sorted({row["label"] for _, row in records["train"] if row.get("label")}))
    found = {split: _split([_row(row, labels, where) for where, row in rows]) for split, rows in records.items()}
    return Task(name, labels, found["train"], found["dev"], found.get("test"), _metrics(name, labels))


def _records(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    if path.suffix == ".tsv":
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            for row in reader:
                yield f"{path}, line {reader.line_num}", {key: value or "" for key, value in row.items() if key}
        return
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number} is not valid JSON: {error}") from None
        yield f"{path}, line {number}", {key: "" if value is None else str(value) for key, value in row.items()}


def _row(row: dict[str, str], labels: tuple[str, ...], where: str) -> tuple[str, str | None, int]:
    first = next((name for name in FIRST if name in row), None)
    second = next((name for name in SECOND if name in row and name != first), None)
    if first is None or "label" not in row:
        raise UserError(
            f"{where}: the columns sentence (or sentence1, sentence2) and label are needed; there are {sorted(row)}"
        )
    if second is not None and not row[second].strip():
        raise UserError(f"{where}: the pair's {second} is missing")
    return _text(row[first], where), row[second].strip() if second else None, _label(row["label"], labels, where)


def _metrics(name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    return ("accuracy", "f1") if name in ("mrpc", "qqp") and len(labels) == 2 else ("accuracy",)


def _from_datasets(name: str, source: str) -> Task:
    """GLUE and what is laid out like it. mnli: matched; mnli-mm: the mismatched dev and test."""
    from datasets import load_dataset

    subset, mismatched = name.removesuffix("-mm"), name.endswith("-mm")
    try:
        found = load_dataset(source, subset)
    except Exception as error:  # the library raises a dozen kinds, some of them its dependencies' own
        raise UserError(
            f"--config.task_dir={source}: no such folder, and the dataset {source} ({subset}) cannot be loaded "
            f"({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}). Name a local folder"
        ) from None
    labels = tuple(found["train"].features["label"].names)
    ending = ("_mismatched" if mismatched else "_matched") if "validation_matched" in found else ""
    first = next(column for column in ("question", *FIRST) if column in found["train"].column_names)
    second = next(
        (c for c in (GLUE_SECOND.get(subset), *SECOND) if c in found["train"].column_names and c != first), None
    )
    splits = {}
    for split, theirs in (("train", "train"), ("dev", f"validation{ending}")):
        rows = found[theirs]
        others = list(rows[second]) if second else None
        splits[split] = Split(list(rows[first]), others, np.array(rows["label"], np.int32))
    return Task(name, labels, splits["train"], splits["dev"], None, _metrics(name, labels))
