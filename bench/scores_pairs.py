"""The rows of bench/scores.py: who learns from which, so that no loss is shown what it is judged by, nor taught that a right passage is wrong."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core.files import write_bytes
from jdistill.data.sets.beir import write_collection

Row = dict[str, Any]
# What decides the files of the workdir that are kept; the others may differ from call to call.
DECIDES = (
    "pairs", "questions", "collection", "held_out", "triplets", "reranker_triplets", "by", "negatives", "student", "teacher", "max_length",
    "student_length", "reranker_start", "reranker_rate", "reranker_steps", "reranker_queries", "reranker_seed", "reranker_bf16",
    "steps", "batch_size", "temperature", "in_batch", "extra",
)  # fmt: skip


def read_rows(path: Path) -> list[Row]:
    """The rows of a .jsonl or .jsonl.gz."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [json.loads(line) for line in file]


def write_rows(path: Path, rows: list[Row]) -> None:
    write_bytes(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def pairs_of(flags: argparse.Namespace) -> dict[str, list[str]]:
    """Query -> all its positives: the textbooks' and QNLI's answered questions, in their order."""
    positives: dict[str, dict[str, None]] = {}
    for row in read_rows(flags.pairs):
        positives.setdefault(row["query"], {})[row["positive"]] = None
    for row in read_rows(flags.questions):
        if row["label"] == "entailment":
            positives.setdefault(row["question"], {})[row["sentence"]] = None
    return {query: list(passages) for query, passages in positives.items()}


def split_queries(
    positives: dict[str, list[str]], held_out: int, triplets: int, reranker_triplets: int
) -> dict[str, list[str]]:
    """The queries held out, of the student's triplets and of the reranker's, drawn by seed 0.

    No passage of a query held out is a positive of another part, and the reranker, which scores the student's triplets, has learnt from
    none of their queries.
    """
    queries = list(positives)
    drawn = [queries[i] for i in np.random.default_rng(0).permutation(len(queries))]
    apart, rest = drawn[:held_out], drawn[held_out:]
    kept_apart = {passage for query in apart for passage in positives[query]}
    rest = [query for query in rest if not kept_apart.intersection(positives[query])]
    return {"held_out": apart, "train": rest[:triplets], "reranker": rest[triplets:][:reranker_triplets]}


def write_pairs(flags: argparse.Namespace) -> None:
    """workdir/held_out.jsonl, train.jsonl and reranker.jsonl, a row for each query and positive; and the passages that their negatives
    are mined among: all.jsonl for the first, without.jsonl, which lacks the first's positives, for the others."""
    positives = pairs_of(flags)
    parts = split_queries(positives, flags.held_out, flags.triplets, flags.reranker_triplets)
    apart = {passage for query in parts["held_out"] for passage in positives[query]}
    passages = list(dict.fromkeys(passage for of_query in positives.values() for passage in of_query))
    write_rows(flags.workdir / "all.jsonl", [{"text": passage} for passage in passages])
    write_rows(flags.workdir / "without.jsonl", [{"text": passage} for passage in passages if passage not in apart])
    for name in ("held_out", "reranker", "train"):  # the last: where it stands all do
        rows = [{"query": query, "positive": passage} for query in parts[name] for passage in positives[query]]
        write_rows(flags.workdir / f"{name}.jsonl", rows)


def write_dev(workdir: Path, triplets: list[Row]) -> Path:
    """workdir/dev, a collection in BEIR layout: the queries held out, all their positives, and the negatives of their triplets.

    Args:
      triplets: rows of query, positive and negatives, one a query.
    """
    folder, positives = workdir / "dev", read_rows(workdir / "held_out.jsonl")
    of_triplets = [text for row in triplets for text in row["negatives"]]
    passages = dict.fromkeys([*(row["positive"] for row in positives), *of_triplets])
    place = {text: f"p{i}" for i, text in enumerate(passages)}
    queries = {row["query"]: f"q{i}" for i, row in enumerate(triplets)}
    relevant: dict[str, dict[str, int]] = {}
    for row in positives:
        if row["query"] in queries:
            relevant.setdefault(queries[row["query"]], {})[place[row["positive"]]] = 1
    texts, asked = ({name: text for text, name in of.items()} for of in (place, queries))
    write_collection(folder, texts, asked, relevant)
    return folder
