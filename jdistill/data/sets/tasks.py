"""Labelled sentences and sentence pairs: SentEval's layouts, a folder of .tsv or .jsonl splits, or GLUE by `datasets`. numpy only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from jdistill.core.errors import UserError
from jdistill.core.fetched import path_here
from jdistill.core.progress import log
from jdistill.data.sets.task_files import (
    OTHER_DEV,
    SPLITS,
    LabelledRow,
    label_of,
    read_dataset,
    read_files,
)
from jdistill.data.text.readers import reading

DEV_SHARE, TEST_SHARE = 0.1, 0.1  # of a task that comes without these splits, drawn by the seed


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
    other_dev: Split | None = None  # MNLI's mismatched rows

    @property
    def pairs(self) -> bool:
        """Whether a row is a pair of texts."""
        return self.train.others is not None


def has_own_files(folder: Path) -> bool:
    """Whether a folder is a task itself, by its files, and not SentEval's of many."""
    return any((folder / f"train{suffix}").is_file() for suffix in (".tsv", ".jsonl"))


def read_task(
    name: str,
    source: str,
    seed: int = 0,
    label_fraction: float = 1.0,
    keys: tuple[str, str] = ("config.task", "config.task_dir"),
) -> Task:
    """A task by name from a SentEval folder, a folder with train and dev as .tsv or .jsonl, or a datasets id such as nyu-mll/glue.

    label_fraction: of the training rows, drawn by the seed, that are kept. keys: of the name and of the source, for messages.
    Raises UserError naming file and line for a layout that is not known, a label outside the set, an empty sentence, a pair with one
    side, a dev split without a labelled row, and a class without a training row.
    """
    if not 0 < label_fraction <= 1:
        raise UserError(f"--config.label_fraction={label_fraction} must lie above 0 and at most at 1")
    folder = path_here(source, keys[1])
    if not folder.is_dir():
        task = _from_rows(name, read_dataset(name, source, keys[1]))
    elif has_own_files(folder):
        task = _from_rows(name, read_files(folder))
    elif name in SENTEVAL:
        task = SENTEVAL[name](name, folder, seed)
    else:
        raise UserError(
            f"--{keys[0]}={name}: {folder} holds no train.tsv or train.jsonl, and SentEval's layout is known of {', '.join(SENTEVAL)}"
        )
    for split, rows in (("dev", task.dev), (OTHER_DEV, task.other_dev)):
        if rows is not None and not len(rows):
            raise UserError(
                f"task {name}: the {split} split of {source} has no labelled row, and a score is of such rows"
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
        raise UserError(f"{path} is missing: the folder of the task is not laid out as SentEval has it")
    with reading(path), open(path, encoding=encoding, newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line.rstrip("\r\n")


def _text(value: str, where: str) -> str:
    if not value.strip():
        raise UserError(f"{where}: an empty sentence")
    return value.strip()


def _split(rows: list[LabelledRow]) -> Split:
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
    splits = {}
    for split in SPLITS:
        path = folder / "SST" / "binary" / f"sentiment-{split}"
        rows: list[LabelledRow] = []
        for number, line in _lines(path):
            text, tab, label = line.rpartition("\t")
            if not tab:
                raise UserError(f"{path}, line {number}: a sentence, a tab and 0 or 1 belong here: {line[:60]!r}")
            rows.append(
                (_text(text, f"{path}, line {number}"), None, label_of(label.strip(), labels, f"{path}, line {number}"))
            )
        splits[split] = _split(rows)
    return Task(name, ("negative", "positive"), splits["train"], splits["dev"], splits["test"])


def _mrpc(name: str, folder: Path, seed: int) -> Task:
    splits = {}
    for split in ("train", "test"):
        path = folder / "MRPC" / f"msr_paraphrase_{split}.txt"
        rows: list[LabelledRow] = []
        for number, line in _lines(path):
            if number == 1:  # the header
                continue
            cells, where = line.split("\t"), f"{path}, line {number}"
            if len(cells) != 5:
                raise UserError(f"{where}: {len(cells)} columns, not label, two numbers and two sentences")
            rows.append((_text(cells[3], where), _text(cells[4], where), label_of(cells[0], ("0", "1"), where)))
        splits[split] = _split(rows)
    dev, train = _parted(splits["train"], seed, test=False)
    return Task(name, ("different", "paraphrase"), train, dev, splits["test"], ("accuracy", "f1"))


def _trec(name: str, folder: Path, seed: int) -> Task:
    labels = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
    splits = []
    for file in ("train_5500.label", "TREC_10.label"):
        path = folder / "TREC" / file
        rows: list[LabelledRow] = []
        for number, line in _lines(path, "latin-1"):
            kind, _, question = line.partition(" ")
            where = f"{path}, line {number}"
            rows.append((_text(question, where), None, label_of(kind.partition(":")[0], labels, where)))
        splits.append(_split(rows))
    dev, train = _parted(splits[0], seed, test=False)
    return Task(name, labels, train, dev, splits[1])


def _two_files(sub: str, negative: str, positive: str) -> Callable[[str, Path, int], Task]:
    """A reader of a folder with one file a label."""

    def read(name: str, folder: Path, seed: int) -> Task:
        rows: list[LabelledRow] = []
        for label, file in enumerate((negative, positive)):
            path = folder / sub / file
            rows += [(_text(line, f"{path}, line {n}"), None, label) for n, line in _lines(path, "latin-1")]
        dev, test, train = _parted(_split(rows), seed, test=True)
        log.warning(
            "%s has no test split: %d rows drawn by the seed stand for one; SentEval's figure is of ten folds and does not compare",
            name,
            len(test),
        )
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


def _metrics(name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    return ("accuracy", "f1") if name in ("mrpc", "qqp") and len(labels) == 2 else ("accuracy",)


def _from_rows(name: str, rows_and_labels: tuple[dict[str, list[LabelledRow]], tuple[str, ...]]) -> Task:
    splits, labels = {split: _split(rows) for split, rows in rows_and_labels[0].items()}, rows_and_labels[1]
    return Task(
        name,
        labels,
        splits["train"],
        splits["dev"],
        splits.get("test"),
        _metrics(name, labels),
        splits.get(OTHER_DEV),
    )
