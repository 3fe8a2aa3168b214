"""Hard negatives for queries that have positives: BM25's and a bi-encoder's best passages, cleared of likely positives.

numpy only: vectors and an index come from the caller. Memory is bounded by the index and one block of queries.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.files import naming
from jdistill.core.left_over import clear_beside
from jdistill.core.locks import try_lock
from jdistill.core.progress import log, progress
from jdistill.data.text.holdout import comparable

# queries start..stop -> scores, rows [n, window], best first
Search = Callable[[int, int], tuple[np.ndarray, np.ndarray]]
QUERIES_PER_BLOCK = 512  # queries searched at once, and lost at most by a kill
FORMAT_OF_MINING = "mining 3"  # another where the same texts would have other negatives


@dataclass(frozen=True)
class Rules:
    """Which of a query's best passages may serve as negatives.

    count: negatives a query. first, last: the window of ranks they are taken from, counted without the positives.
    margin: a candidate must score at least so much below the query's worst positive; relative_margin: at most that share
    of it (0.95: NV-Retriever's; of a negative one, as far below it). Both by the same scores; None: not asked for.
    """

    count: int = 8
    first: int = 0
    last: int = 100
    margin: float | None = None
    relative_margin: float | None = None

    @property
    def has_margin(self) -> bool:
        """Whether a positive's score bounds those of negatives."""
        return self.margin is not None or self.relative_margin is not None

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.first < self.last:
            raise UserError(
                f"mining: count {self.count} must be positive and 0 <= first {self.first} < last {self.last}"
            )
        for name, most in (("margin", np.finfo(np.float32).max), ("relative_margin", 1.0)):
            if (value := getattr(self, name)) is not None and not 0 <= value <= most:
                raise UserError(
                    f"mining: {name} {value} is no number to compare scores by, 0 or more; relative_margin is a share, 0 to 1"
                )


def pick(
    scores: np.ndarray,
    rows: np.ndarray,
    positives: Collection[int],
    positive_score: float,
    query: str,
    passages: Sequence[str],
    rules: Rules,
) -> list[int]:
    """Rows of the negatives of one query, best first, at most rules.count.

    scores, rows: of its best passages, best first, row -1 for none. positive_score: of its worst positive. Left out are
    the positives, passages whose text equals the query's or a positive's (data.text.holdout.comparable), repeats, and what
    the margins forbid.
    """
    right = set(positives)
    taken = {comparable(passages[row]) for row in right} | {comparable(query)}
    limit = np.inf
    if rules.margin is not None:
        limit = positive_score - rules.margin
    if rules.relative_margin is not None:
        limit = min(limit, positive_score - (1 - rules.relative_margin) * abs(positive_score))
    picked: list[int] = []
    rank = -1
    for score, row in zip(scores, rows, strict=True):
        if row < 0 or row in right:
            continue
        rank += 1
        if rank < rules.first or score > limit:
            continue
        if rank >= rules.last or len(picked) == rules.count:
            break
        text = comparable(passages[row])
        if text not in taken:
            taken.add(text)
            picked.append(int(row))
    return picked


def mine(
    queries: Sequence[str],
    positives: Sequence[Sequence[int]],
    passages: Sequence[str],
    search: Search,
    score_of: Callable[[int, Sequence[int]], np.ndarray],
    rules: Rules,
    by: str,
    out: Path,
    write: Callable[[Sequence[dict[str, Any]], Path], None] | None = None,
    check_out: Callable[[], None] = lambda: None,
    own: Sequence[int] | None = None,
) -> None:
    """Writes records as .jsonl (query, a positive, negatives), one a query; goes on where the same job was killed, and waits where
    another process is at it.

    positives[i]: rows of `passages`; where queries that follow one another are equal and share this object, they share their negatives.
    own[i]: the row of the positive that record i names; None: each query's first. search: the best passages of a block of queries.
    score_of(i, rows): query i's scores of these passages, for the margins. by: names what searches and scores, so that another's part
    file is not gone on with.
    write: makes a file of the records, which becomes `out`; None: `out` holds them as they are.
    check_out: raises where `out` may not be replaced, asked when all is ready. Where either raises the records stay in their part file.
    Queries without a positive are skipped and counted. Raises UserError for a part file that changed under its writer's hands.
    """
    job = digest(FORMAT_OF_MINING, repr((rules, by, *_listed_once(positives), own)), queries, passages)
    beside = out.with_name(f"{out.name}.{job[:16]}.part")
    with naming(beside), _only_writer(beside) as file:
        if file is None:
            log.info("the other process has written %s", out)
            return
        done = _lines_of(beside, queries, passages)
        with progress("mining", len(queries), "queries", done) as meter:
            for start in range(done, len(queries), QUERIES_PER_BLOCK):
                stop = min(start + QUERIES_PER_BLOCK, len(queries))
                scores, rows = search(start, stop)
                lines, negatives = [], list[str]()
                for i in range(start, stop):
                    mine_of = positives[i]
                    record: dict[str, object] = {"query": queries[i], "positive": "", "negatives": []}
                    if mine_of:
                        if i == start or mine_of is not positives[i - 1] or queries[i] != queries[i - 1]:
                            worst = float(np.min(score_of(i, mine_of))) if rules.has_margin else np.inf
                            of_query = scores[i - start], rows[i - start]
                            negatives = [
                                passages[row] for row in pick(*of_query, mine_of, worst, queries[i], passages, rules)
                            ]
                        positive = mine_of[0] if own is None else own[i]
                        record |= {"positive": passages[positive], "negatives": negatives}
                    lines.append(json.dumps(record, ensure_ascii=False) + "\n")
                file.write("".join(lines))
                file.flush()
                os.fsync(file.fileno())
                meter.advance(stop - start)
        if (records := read_mined(beside, queries, passages)) is None:
            raise UserError(
                f"{beside} was changed by another process or its disk; run the same command again, which goes on from what is whole"
            )
        counts = [len(record["negatives"]) for record in records]
        ready = beside
        if write is not None:
            ready = beside.with_suffix(".written")  # of this job alone, whose lock this process holds
            clear_beside(ready)
            write(records, ready)
        check_out()
        os.replace(ready, out)
        beside.unlink(missing_ok=True)
    skipped = sum(not rows for rows in positives)
    fewer = sum(count < rules.count for count in counts) - skipped
    log.info(
        "mined %d rows of %d queries: %d have fewer than %d negatives, %d have no positive",
        len(queries),
        len(set(queries)),
        fewer,
        rules.count,
        skipped,
    )


def _listed_once(positives: Sequence[Sequence[int]]) -> tuple[list[list[int]], list[int]]:
    """Lists of rows, one that several queries share once, and each query's number among them."""
    listed = {id(rows): rows for rows in positives}
    numbers = {shared: number for number, shared in enumerate(listed)}
    return [list(rows) for rows in listed.values()], [numbers[id(rows)] for rows in positives]


def read_mined(path: Path, queries: Sequence[str], passages: Sequence[str]) -> list[dict[str, Any]] | None:
    """The records that mine() wrote of these queries, in order; None where the file is not there, or is damaged, which is said."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    records = list(_whole_records(content, queries, passages))
    if len(records) == len(queries) and sum(size for _, size in records) == len(content):
        return [record for record, _ in records]
    log.warning("%s is damaged behind line %d", path, len(records))
    return None


def _whole_records(
    content: bytes, queries: Sequence[str], passages: Sequence[str]
) -> Iterator[tuple[dict[str, Any], int]]:
    """(record, bytes of its line), up to the first line that mine() would not have written of these texts.

    Only a line feed ends one: texts may hold U+2028, at which str.splitlines cuts too.
    """
    there = {*passages, ""}
    for query, line in zip(queries, content.split(b"\n")[:-1], strict=False):
        try:
            record = json.loads(line)
            texts = [record["positive"], *record["negatives"]]
            if record["query"] != query or not there.issuperset(texts):
                return
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        yield record, len(line) + 1


def scored_by(search: Search, score_of: Callable[[int, Sequence[int]], np.ndarray]) -> Search:
    """The passages of `search` in its order, with the scores of another, so that the margins are the other's."""

    def both(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        _, rows = search(start, stop)
        scores = [score_of(i, np.maximum(row, 0).tolist()) for i, row in enumerate(rows, start)]
        return np.where(rows < 0, -np.inf, np.array(scores).reshape(rows.shape)), rows

    return both


@contextmanager
def _only_writer(path: Path) -> Iterator[TextIO | None]:
    """The file, open for appending by one process at a time; None where the process that was waited for has ended the job and moved it.
    On a file system without locks there is no waiting."""
    with open(path, "a", encoding="utf-8") as file:
        if (held := try_lock(file.fileno())) is None:
            log.warning("%s is on a file system without locks: take care that one process mines there", path.parent)
        elif not held:
            log.info("another process is mining the same in %s; waiting for it", path.parent)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()) else None


def _lines_of(path: Path, queries: Sequence[str], passages: Sequence[str]) -> int:
    """Whole lines of a part file; what a kill or a damaged disk left behind the last one is cut off."""
    content = path.read_bytes()
    sizes = [size for _, size in _whole_records(content, queries, passages)]
    if sum(sizes) != len(content):
        os.truncate(path, sum(sizes))
    return len(sizes)
