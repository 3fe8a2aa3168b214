"""Sentence pairs scored by people: SentEval's seven STS tasks, and a user's own files."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jdistill.core.digest import DigestPart, digest
from jdistill.core.errors import UserError
from jdistill.core.json_files import parse_json
from jdistill.core.progress import log
from jdistill.data.text.readers import regular
from jdistill.data.text.usable import has_surrogate

USUAL_PAIRS = {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186, "STS-B": 1379, "SICK-R": 4927}
STSB, SICK = Path("STS", "STSBenchmark", "sts-test.csv"), Path("SICK", "SICK_test_annotated.txt")
PAIR_SUFFIXES = (".csv", ".tsv", ".txt", ".jsonl")
USER_COLUMNS = ("sentence1", "sentence2", "score")
SICK_COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")
STSB_COLUMNS = (5, 6, 4)  # of the benchmark's headerless file: genre, file, year, id, score, sentence, sentence

ScoredPair = tuple[str, str, float]


class StsSubset(NamedTuple):
    """Scored pairs: left[i] and right[i] got gold[i], float64 [N]."""

    name: str
    left: list[str]
    right: list[str]
    gold: np.ndarray


class StsTask(NamedTuple):
    """One column of the STS table: its subsets, scored together."""

    name: str
    subsets: list[StsSubset]


def sts_tasks(folder: Path) -> list[StsTask]:
    """The tasks that a SentEval folder holds, in the table's order; pairs without a score are left out.

    Says in the log which tasks are missing or have an unusual number of pairs. Raises UserError where there is none at
    all, or a file is malformed.
    """
    tasks = []
    for name, subsets in _tasks(folder):
        scored = [_subset(subset, rows) for subset, rows in subsets]
        scored = [subset for subset in scored if len(subset.gold)]
        pairs = sum(len(subset.gold) for subset in scored)
        if scored:
            tasks.append(StsTask(name, scored))
        if not scored:
            log.warning("%s has no %s: no average is given, which is over all seven tasks", folder, name)
        elif pairs != USUAL_PAIRS[name]:
            log.warning(
                "%s in %s has %d scored pairs, not %d: its figure does not compare with published ones",
                name,
                folder,
                pairs,
                USUAL_PAIRS[name],
            )
    return tasks


def sts_sentences(folder: Path, tasks: Collection[str] = tuple(USUAL_PAIRS)) -> Iterator[str]:
    """Every sentence of a SentEval folder's test sets, of these tasks, those of unscored pairs too. Raises UserError as sts_tasks."""
    return (side for pair in sts_pairs(folder, tasks) for side in pair)


def sts_pairs(folder: Path, tasks: Collection[str] = tuple(USUAL_PAIRS)) -> Iterator[tuple[str, str]]:
    """The pairs whose sides sts_sentences gives."""
    return (row[:2] for name, subsets in _tasks(folder) if name in tasks for _, rows in subsets for row in rows)


def sts_digest(folder: Path) -> str:
    """A hash of all that sts_tasks gives of a SentEval folder: another for other sentences, scores or tasks."""
    parts: list[DigestPart] = []
    for task in sts_tasks(folder):
        for subset in task.subsets:
            parts += [task.name, subset.name, subset.left, subset.right, subset.gold]
    return digest(*parts)


def pair_files(path: Path) -> list[Path]:
    """The files of scored pairs that a path names: itself, or those of a folder by name. Raises UserError for a folder without one, and for
    what is not there."""
    if not path.exists():
        raise UserError(f"{path}: no such file or folder of scored pairs")
    if not path.is_dir():
        return [path]
    files = sorted(
        file for file in path.iterdir() if file.suffix in PAIR_SUFFIXES and file.name[0] != "." and file.is_file()
    )
    if not files:
        raise UserError(f"{path} holds no file of scored pairs, which end in {', '.join(PAIR_SUFFIXES)}")
    return files


def read_scored_pairs(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Pairs of sentences with their scores from a .csv, .tsv, .txt or .jsonl file.

    Read are columns sentence1, sentence2, score; SICK's columns; and the STS benchmark's headerless seven. A file whose first line has a
    tab is tab separated, without quoting; others have commas and quotes. Blank lines are passed over.

    Returns: two lists of N sentences, and their scores, float64 [N].

    Raises: UserError naming file and line for a missing column, an empty side, or a score that is no finite number.
    """
    if path.suffix not in PAIR_SUFFIXES:
        raise UserError(f"{path}: scored pairs are read from .csv, .tsv, .txt or .jsonl")
    rows = list(_jsonl_pairs(path) if path.suffix == ".jsonl" else _table_pairs(path))
    if not rows:
        raise UserError(f"{path} holds no pair")
    _, left, right, gold = _subset(path.name, rows)
    return left, right, gold


def _subset(name: str, rows: Sequence[ScoredPair]) -> StsSubset:
    scored = [row for row in rows if not math.isnan(row[2])]
    return StsSubset(name, [row[0] for row in scored], [row[1] for row in scored], np.array([row[2] for row in scored]))


def _tasks(folder: Path) -> list[tuple[str, list[tuple[str, list[ScoredPair]]]]]:
    """Per task its subsets with their rows; an unscored pair has the score NaN."""
    tasks = []
    for year in range(12, 17):
        inputs = sorted((folder / "STS" / f"STS{year}-en-test").glob("STS.input.*.txt"))
        tasks.append(
            (f"STS{year}", [(path.name[len("STS.input.") : -len(".txt")], _sts_year(path)) for path in inputs])
        )
    for name, path in ("STS-B", folder / STSB), ("SICK-R", folder / SICK):
        tasks.append((name, [("test", list(_table_pairs(path)))] if path.is_file() else []))
    if not any(subsets for _, subsets in tasks):
        raise UserError(
            f"senteval: no STS task in {folder}; a SentEval folder has STS/STS12-en-test and others, {STSB}, {SICK}"
        )
    return tasks


def _sts_year(path: Path) -> list[ScoredPair]:
    gold_path = path.with_name(path.name.replace("STS.input.", "STS.gs.", 1))
    pairs, gold = _lines(path), _lines(gold_path)
    if len(pairs) != len(gold):
        raise UserError(f"{path} has {len(pairs)} lines, {gold_path.name} {len(gold)}; each needs one line per pair")
    rows = []
    for line, (pair, score) in enumerate(zip(pairs, gold, strict=True), 1):
        left, right, *_ = [side.strip() for side in pair.split("\t")] + [""]
        rows.append(_row(path, line, left, right, score, gold_path) if score.strip() else (left, right, math.nan))
    return rows


def _table_pairs(path: Path) -> Iterator[ScoredPair]:
    table = _cells(path)
    first = next(table, (1, []))
    columns, has_header = _columns(path, first[1])
    for line, cells in table if has_header else chain([first], table):
        if len(cells) <= max(columns):
            raise UserError(f"{path}, line {line}: {len(cells)} columns, but column {max(columns) + 1} is needed")
        if has_header and any(map(str.strip, cells[len(first[1]) :])):
            raise UserError(
                f"{path}, line {line}: {len(cells)} columns, but the header has {len(first[1])}; a sentence with a comma in it needs quotes"
            )
        left, right, score = (cells[column] for column in columns)
        yield _row(path, line, left, right, score)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row that is not blank."""
    lines = _lines(path)
    if lines and "\t" in lines[0]:
        # Sentences hold quotation marks that mean nothing to these formats, so no csv reader here.
        yield from ((number, line.split("\t")) for number, line in enumerate(lines, 1) if line.strip())
        return
    reader = csv.reader((line + "\n" for line in lines), strict=True)
    try:
        yield from ((reader.line_num, cells) for cells in reader if any(map(str.strip, cells)))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: not a well-formed row of a .csv ({error})") from None


def _columns(path: Path, first: list[str]) -> tuple[tuple[int, ...], bool]:
    """Where left, right and score stand, and whether the first row is a header."""
    names = [cell.strip() for cell in first]
    for wanted in (USER_COLUMNS, SICK_COLUMNS):
        if set(wanted) <= set(names):
            return tuple(names.index(name) for name in wanted), True
    if len(names) > max(STSB_COLUMNS) and math.isfinite(_number(names[STSB_COLUMNS[2]])):
        return STSB_COLUMNS, False
    raise UserError(
        f"{path}, line 1: columns {', '.join(USER_COLUMNS)} are needed; found is {', '.join(names)[:200] or 'nothing'}"
    )


def _jsonl_pairs(path: Path) -> Iterator[ScoredPair]:
    for line, text in enumerate(_lines(path), 1):
        if not text.strip():
            continue
        record = parse_json(text, f"{path}, line {line}")
        if not isinstance(record, dict) or not set(USER_COLUMNS) <= record.keys():
            raise UserError(f"{path}, line {line}: {', '.join(USER_COLUMNS)} are needed; found is {text[:80]}")
        yield _row(path, line, *(record[name] for name in USER_COLUMNS))


def _row(path: Path, line: int, left: Any, right: Any, score: Any, scores: Path | None = None) -> ScoredPair:
    """A checked pair. scores: the file that the score is from, where it is not `path`."""
    for side, text in enumerate((left, right), 1):
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{path}, line {line}: sentence {side} is empty or no string: {text!r:.80}")
        if has_surrogate(text):
            raise UserError(f"{path}, line {line}: sentence {side} has a lone surrogate; remove the row")
    value = _number(score)
    if not math.isfinite(value):
        raise UserError(f"{scores or path}, line {line}: the score is {score!r}, not a finite number")
    return left.strip(), right.strip(), value


def _number(cell: Any) -> float:
    """NaN where the cell is no number."""
    try:
        return float(cell) if not isinstance(cell, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _lines(path: Path) -> list[str]:
    try:
        text = regular(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {line}: not UTF-8 ({error.reason})") from None
    # Only a line feed ends a line here: str.splitlines would also cut at characters that occur within sentences.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines
