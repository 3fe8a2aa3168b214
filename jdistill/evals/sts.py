"""Semantic textual similarity: Spearman of a model's cosines with people's scores, on SentEval's seven tasks or a user's pairs."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from jdistill.encoder import Encoder
from jdistill.errors import UserError
from jdistill.index import unit_rows
from jdistill.progress import log

STANDARD_PAIRS = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STS-B": 1379, "SICK-R": 4927}
STSB, SICK = Path("STS", "STSBenchmark", "sts-test.csv"), Path("SICK", "SICK_test_annotated.txt")
USER_COLUMNS = ("sentence1", "sentence2", "score")
SICK_COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")
STSB_COLUMNS = (5, 6, 4)  # of the benchmark's headerless file: genre, file, year, id, score, sentence, sentence

Row = tuple[str, str, float]


@dataclass(frozen=True)
class Subset:
    """Scored pairs: left[i] and right[i] got gold[i], float64 [N]."""

    name: str
    left: list[str]
    right: list[str]
    gold: np.ndarray


@dataclass(frozen=True)
class Task:
    """One column of the STS table: its subsets, scored together."""

    name: str
    subsets: list[Subset]


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation x 100, ties given their mean rank; 0 where it is undefined (a constant side, one pair)."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return 100 * float(spearmanr(x, y).statistic)


def sts_tasks(folder: Path) -> list[Task]:
    """The tasks that a SentEval folder holds, in the table's order; pairs without a score are left out.

    Says in the log which are missing, and which do not have the usual number of pairs. Raises UserError where there is
    none at all, or a file is malformed.
    """
    tasks = []
    for name, subsets in _tasks(folder):
        scored = [_subset(subset, [row for row in rows if not math.isnan(row[2])]) for subset, rows in subsets]
        tasks.append(Task(name, scored))
        pairs = sum(len(subset.gold) for subset in scored)
        if pairs != STANDARD_PAIRS[name]:
            log.warning("%s in %s has %d scored pairs, not the usual %d: its figure does not compare with published ones",
                        name, folder, pairs, STANDARD_PAIRS[name])
    missing = [name for name in STANDARD_PAIRS if name not in {task.name for task in tasks}]
    if missing:
        log.warning("%s lacks %s: no average is given, which is over all seven", folder, ", ".join(missing))
    return tasks


def sts_sentences(folder: Path) -> Iterator[str]:
    """Every sentence of the test sets in a SentEval folder, those of unscored pairs too. Raises UserError as sts_tasks."""
    for _, subsets in _tasks(folder):
        for _, rows in subsets:
            for left, right, _ in rows:
                yield left
                yield right


def evaluate_sts(encoder: Encoder, folder: Path) -> dict[str, Any]:
    """{"sts": …, "sts_by_subset": …}, all Spearman x 100.

    sts: per task, over all its subsets' pairs concatenated; Avg is the mean of all seven, absent where one is missing.
    sts_by_subset: per task, each subset's figure ("subsets"), their mean, and their mean weighted by pairs ("wmean").
    """
    tasks = sts_tasks(folder)
    every = [subset for task in tasks for subset in task.subsets]
    cosines = iter(_cosines(encoder, [(subset.left, subset.right) for subset in every]))
    sts: dict[str, float] = {}
    by_subset: dict[str, Any] = {}
    for task in tasks:
        found = [next(cosines) for _ in task.subsets]
        gold = [subset.gold for subset in task.subsets]
        sts[task.name] = spearman(np.concatenate(found), np.concatenate(gold))
        single = [spearman(x, y) for x, y in zip(found, gold, strict=True)]
        by_subset[task.name] = {"mean": float(np.mean(single)), "wmean": float(np.average(single, weights=[len(y) for y in gold])),
                                "subsets": {subset.name: value for subset, value in zip(task.subsets, single, strict=True)}}
    if len(sts) == len(STANDARD_PAIRS):
        sts["Avg"] = float(np.mean(list(sts.values())))
    return {"sts": sts, "sts_by_subset": by_subset}


def evaluate_pairs(encoder: Encoder, path: Path) -> float:
    """Spearman x 100 on a file of scored pairs (see read_scored_pairs). Raises UserError where all scores are the same."""
    left, right, gold = read_scored_pairs(path)
    if np.ptp(gold) == 0:
        raise UserError(f"{path}: every one of its {len(gold)} pairs has the score {gold[0]:g}; ranks need different scores")
    return spearman(_cosines(encoder, [(left, right)])[0], gold)


def read_scored_pairs(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Two lists of N sentences and their scores, float64 [N], from a .csv .tsv .txt or .jsonl file.

    Read are columns sentence1, sentence2, score; SICK's columns; and the STS benchmark's headerless seven. A file whose
    first line has a tab is tab separated, without quoting; else it is a .csv with commas and quotes. Blank lines are
    passed over. Raises UserError naming file and line for a missing column, an empty side, or a score that is no number.
    """
    if path.suffix == ".jsonl":
        rows = list(_jsonl_pairs(path))
    elif path.suffix in (".csv", ".tsv", ".txt"):
        rows = list(_table_pairs(path))
    else:
        raise UserError(f"{path}: scored pairs are read from .csv, .tsv, .txt or .jsonl")
    if not rows:
        raise UserError(f"{path} holds no pair")
    subset = _subset(path.name, rows)
    return subset.left, subset.right, subset.gold


def _cosines(encoder: Encoder, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[np.ndarray]:
    """float32 [N] for each two lists of N sentences; each distinct sentence is encoded once."""
    place = {text: i for i, text in enumerate(dict.fromkeys(text for sides in pairs for side in sides for text in side))}
    vectors = unit_rows(encoder.encode(list(place), show_progress=True))
    found = []
    for left, right in pairs:
        u, v = (vectors[[place[text] for text in side]] for side in (left, right))
        found.append(np.einsum("nd,nd->n", u, v))
    if all(np.ptp(cosines) == 0 for cosines in found):
        log.warning("the model gives every pair the same cosine; Spearman is undefined and counted as 0")
    return found


def _subset(name: str, rows: Sequence[Row]) -> Subset:
    return Subset(name, [row[0] for row in rows], [row[1] for row in rows], np.array([row[2] for row in rows], np.float64))


def _tasks(folder: Path) -> Iterator[tuple[str, list[tuple[str, list[Row]]]]]:
    """Per task its subsets with their rows; an unscored pair has the score NaN."""
    found = 0
    for year in range(12, 17):
        inputs = sorted((folder / "STS" / f"STS{year}-en-test").glob("STS.input.*.txt"))
        if inputs:
            found += 1
            yield f"STS{year}", [(path.name.removeprefix("STS.input.").removesuffix(".txt"), _sts_year(path)) for path in inputs]
    for name, path in ("STS-B", folder / STSB), ("SICK-R", folder / SICK):
        if path.is_file():
            found += 1
            yield name, [("test", list(_table_pairs(path)))]
    if not found:
        raise UserError(f"no STS task in {folder}; a SentEval folder has STS/STS12-en-test … STS/STS16-en-test, {STSB} and {SICK}")


def _sts_year(path: Path) -> list[Row]:
    gold_path = path.with_name(path.name.replace("STS.input.", "STS.gs.", 1))
    pairs, gold = _lines(path), _lines(gold_path)
    if len(pairs) != len(gold):
        raise UserError(f"{path} has {len(pairs)} lines, {gold_path.name} {len(gold)}; line n of one scores line n of the other")
    rows = []
    for line, (pair, score) in enumerate(zip(pairs, gold, strict=True), 1):
        sides = pair.split("\t")
        if len(sides) < 2:
            raise UserError(f"{path}, line {line}: no tab between two sentences: {pair[:60]!r}")
        rows.append(_row(path, line, sides[0], sides[1], score) if score.strip() else (sides[0].strip(), sides[1].strip(), math.nan))
    return rows


def _table_pairs(path: Path) -> Iterator[Row]:
    lines = _lines(path)
    if not lines:
        raise UserError(f"{path} is empty")
    if "\t" in lines[0]:
        table: Iterable[tuple[int, list[str]]] = ((n, line.split("\t")) for n, line in enumerate(lines, 1) if line.strip())
    else:
        reader = csv.reader((line + "\n" for line in lines), strict=True)
        table = ((reader.line_num, cells) for cells in reader if cells)
    header = [cell.strip() for cell in next(csv.reader([lines[0]])) ] if "\t" not in lines[0] else lines[0].split("\t")
    columns, has_header = _columns(path, [cell.strip() for cell in header])
    try:
        for line, cells in table:
            if has_header:
                has_header = False
            elif len(cells) <= max(columns):
                raise UserError(f"{path}, line {line}: {len(cells)} columns; at least {max(columns) + 1} are needed")
            else:
                yield _row(path, line, *(cells[column] for column in columns))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not a well-formed CSV row ({error})") from None
