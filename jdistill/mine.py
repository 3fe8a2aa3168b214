"""The command python -m jdistill.mine: hard negatives for (query, positive) pairs, as triplets for fine-tuning.

python -m jdistill.mine --pairs pairs.jsonl --by bm25 --out triplets.jsonl
python -m jdistill.mine --pairs pairs.jsonl --by TEACHER --corpus sentences.txt --relative_margin 0.95 --out triplets.jsonl
python -m jdistill.mine --pairs pairs.jsonl --by bm25 --score_by RERANKER --out triplets.jsonl
"""

from __future__ import annotations

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import argparse
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from jdistill.core.cache_mirror import cache_root
from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.files import default_folder
from jdistill.core.folders import check_out_file
from jdistill.core.help import CommandHelp
from jdistill.core.progress import log, setup_logging
from jdistill.core.remote import local_only
from jdistill.data.sets.triplets import read_triplets
from jdistill.data.text.holdout import comparable
from jdistill.data.text.sources import read_texts
from jdistill.encoder import loading
from jdistill.retrieval.bm25 import bm25_search
from jdistill.retrieval.dense import dense_search
from jdistill.retrieval.mined_triplets import write_scored
from jdistill.retrieval.mining import Rules, Search, mine
from jdistill.teachers.pair_teachers import averaged_scores, open_pair_teachers


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(formatter_class=CommandHelp, prog="python -m jdistill.mine", description=__doc__)
    parser.add_argument(
        "--pairs",
        required=True,
        help="rows with query (or anchor) and positive: .jsonl .csv .tsv .parquet; a query may have several, each of which gives a triplet",
    )
    parser.add_argument(
        "--corpus", default="", help="further passages: any text source; without it, the positives alone"
    )
    parser.add_argument("--column", default="", help="the text column of --corpus")
    parser.add_argument("--by", required=True, help="bm25, or an encoder: a folder, a hub id, or pkg:…")
    parser.add_argument("--out", type=local_only, required=True, help="the triplets, .jsonl")
    parser.add_argument("--count", type=int, default=8, help="negatives a query")
    parser.add_argument("--first", type=int, default=0, help="the best rank that a negative may have")
    parser.add_argument("--last", type=int, default=100, help="the rank where the search for negatives ends")
    parser.add_argument("--margin", type=float, help="a negative scores at least so much below the worst positive")
    parser.add_argument("--relative_margin", type=float, help="and at most this share of its score, such as 0.95")
    parser.add_argument(
        "--score_by",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="who scores passages: a classifier of pairs, a cross-encoder (or st:SOURCE), a decoder as judge, cosine:ENCODER; several: their mean",
    )
    parser.add_argument("--judge_adapter", default="", help="of a decoder in --score_by: a LoRA folder that tuned it")
    parser.add_argument("--overwrite", action="store_true", help="replace the file --out")
    parser.add_argument(
        "--cache_dir", default="", help="scores are kept there, a folder or a URL; empty: the user's cache"
    )
    return parser


@exits_cleanly(resumes=True)
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.mine`; returns its exit status."""
    flags = make_parser().parse_args(argv)
    keep_compiled_programs()
    setup_logging()
    rules = Rules(flags.count, flags.first, flags.last, flags.margin, flags.relative_margin)
    check_out_file(flags.out, "--out", flags.overwrite)
    if flags.out.suffix != ".jsonl":
        raise UserError(f"--out={flags.out}: triplets are written as JSON lines; name a file that ends in .jsonl")
    if flags.column and not flags.corpus:
        raise UserError(f"--column={flags.column} is the text column of --corpus, which is not given; leave it out")
    pairs = read_triplets(flags.pairs, key="pairs", with_scores=False)
    if pairs.skipped:
        log.warning("%s: skipped %s", flags.pairs, ", ".join(f"{n} {reason}" for reason, n in pairs.skipped.items()))
    cache = cache_root(flags.cache_dir, "cache_dir") if flags.cache_dir else default_folder()
    scorers = open_pair_teachers(flags.score_by, "score_by", flags.judge_adapter)
    score = partial(averaged_scores, scorers, folder=cache) if scorers else None
    passages = list(dict.fromkeys(pairs.positives))
    if flags.corpus:
        passages = list(dict.fromkeys(passages + read_texts(flags.corpus, flags.column, key="corpus").texts))
    row_of = {text: row for row, text in enumerate(passages)}
    rows_of: dict[str, dict[int, None]] = {}  # each query's positives, each once
    for query, positive in zip(pairs.anchors, pairs.positives, strict=True):
        rows_of.setdefault(query, {})[row_of[positive]] = None
    # A query has a triplet for each of its positives, that one first; it is searched once.
    distinct, query_of = list(rows_of), np.repeat(np.arange(len(rows_of)), [len(rows) for rows in rows_of.values()])
    queries = [distinct[i] for i in query_of]
    own, positives = positives_of_each(rows_of)
    log.info("mining: %d queries, %d passages, by %s", len(rows_of), len(passages), flags.by)
    # Positives stand among the best passages and are not counted as ranks.
    window = min(len(passages), rules.last + max(map(len, positives)))
    by = flags.by
    if by == "bm25":
        search, score_of = bm25_search(distinct, passages, window)
    else:
        model = loading.load(by, key="by")
        by = model.fingerprint_in_roles()
        search, score_of = dense_search(model, distinct, passages, window)
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    check = partial(check_still_free, flags.out, flags.overwrite)
    write = partial(write_scored, score=score) if score else None
    found_by = partial(search_of_each, search, query_of)
    mine(
        queries,
        positives,
        passages,
        found_by,
        lambda i, rows: score_of(query_of[i], rows),
        rules,
        repr((by, flags.score_by, flags.judge_adapter)) if scorers else by,
        flags.out,
        write,
        check,
        own,
    )
    return 0


def positives_of_each(rows_of: Mapping[str, Collection[int]]) -> tuple[list[int], list[list[int]]]:
    """Of the triplets of each query in turn: the row of the positive that it names, and those of all queries that are the same question,
    one list for all their triplets.

    rows_of: query -> rows of its positives. Queries are the same where data.text.holdout.comparable has them so.
    """
    of_question: dict[str, dict[int, None]] = {}
    for query, rows in rows_of.items():
        of_question.setdefault(comparable(query), {}).update(dict.fromkeys(rows))
    lists = {question: list(rows) for question, rows in of_question.items()}
    own = [row for rows in rows_of.values() for row in rows]
    return own, [lists[comparable(query)] for query, rows in rows_of.items() for _ in rows]


def search_of_each(search: Search, query_of: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """`search` for triplets start..stop, of which query_of, int [N], rising, has the query: those of one query share what was found."""
    rows = query_of[start:stop]
    scores, passages = search(int(rows[0]), int(rows[-1]) + 1)
    return scores[rows - rows[0]], passages[rows - rows[0]]


def check_still_free(out: Path, overwrite: bool) -> None:
    """Raises UserError where a file has come to `out` since the command began, which it may not replace."""
    try:
        check_out_file(out, "--out", overwrite)
    except UserError as refusal:
        raise UserError(
            f"{refusal}. What was mined is kept beside it ({out.name}.*.part), and the same command goes on with it"
        ) from None


if __name__ == "__main__":
    leave(main())
