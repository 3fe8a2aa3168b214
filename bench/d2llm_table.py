"""D2LLM's tables: a judge before and after tuning, its student, a contrastive bi-encoder, the ablations and the weights of the losses.

    python bench/d2llm_table.py --teacher MODEL.gguf --symmetric snli_pairs.jsonl --asymmetric qnli_dev.jsonl --workdir runs/d2llm-table \\
        [--rows student bi_encoder no_ri_ph …] [--seeds 0 1 2] [--judge RUN/tune/adapter] [-- --config.student.layers=6 …]

The judge is tuned once, in the run student-0, or is the one of --judge; the other runs begin with its adapter and find its scores. A row
is the student with what an ablation of configs/d2llm.py changes, or with a key of cfg.loss at a value, as alpha=0.5; sym, asym (one file
alone, scored on the other too), cos-sym, cos-asym (the same by cosine; cosine is the paper's cos-mixed), single (one branch), half (of
the layers). --variant: of the student, and so of all rows that change a part of it: calibrated or beside_cosine. labels, the control, is
the student without what the judge says; bi_encoder and bi_encoder_pma, contrastive alone, have the student's negatives, the last token's
state or the student's own pooler, and adapters of the rank with which they train as many parameters as the student. Runs are folders of
WORKDIR that resume.
Prints accuracy, average precision, prior, precision and recall for each file, each row's average precision above the prior as a share
of its judge's, and MRR@10 and recall@10 of the held-out questions, by cosine and by the interaction module. Adds to
bench/results/d2llm_table.json, d2llm_table-questions.json and, of the dev pairs and questions, by which rows are chosen, -dev.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
from d2llm_figures import keep_dev, keep_pairs, keep_questions, line, retrieval_lines
from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict
from runs import finished_run
from untrained import config_of

import jdistill
from configs import d2llm
from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.progress import setup_logging
from jdistill.encoder.pair_scorer import PairScorer, load_pair_scorer
from jdistill.feeds.judged import JudgedPairs, read_judged
from jdistill.feeds.judged_results import evaluate_judged, evaluate_questions
from jdistill.models import lora

ONE_FILE = {
    "sym": "asymmetric",
    "asym": "symmetric",
    "cos-sym": "asymmetric",
    "cos-asym": "symmetric",
}  # row -> what is left out
# Of a row that is to have no judge, whatever the command line says for the students.
WITHOUT_JUDGE = {
    "loss.imitate": "False", "loss.alpha": "0.0", "loss.beta": "0.0", "loss.gamma": "0.0", "loss.listed": "0.0",
    "unlabelled_symmetric": "", "unlabelled_asymmetric": "",
}  # fmt: skip
BI_ENCODERS = {
    "bi_encoder": "lasttoken",
    "bi_encoder_pma": "pma",
}  # row -> its pooling: the paper's kind, and the student's own
ABLATIONS = ("contrastive", "no_ri_ph", "no_ri_hi", "no_fi", "mean", "lasttoken", "cosine")
ROWS = ("student", "labels", "beside_cosine", *BI_ENCODERS, *ABLATIONS)


def run(flags: argparse.Namespace, row: str, seed: int) -> Path:
    """The complete run of a row."""
    workdir, first = flags.workdir / f"{row}-{seed}", flags.workdir / "student-0"
    variant, keys = changes_of(flags, row)
    sources = {"teacher": flags.teacher, "symmetric": flags.symmetric, "asymmetric": flags.asymmetric}
    if workdir != first and not flags.judge:
        run(flags, "student", 0)
    if workdir != first or flags.judge:
        keys |= {"judge.adapter": str(judge_of(flags)), "tune.epochs": "0", "tune.max_steps": "0"}
    keys = sources | {"seed": str(seed), "onnx": "False", "latency_texts": "0", "index_texts": "0"} | keys
    # The changed keys of a row after what the command line says for all of them.
    extra = [*flags.extra, *(f"--config.{key}={value}" for key, value in keys.items())]
    finished_run(f"configs/d2llm.py:{variant}" if variant else "configs/d2llm.py", workdir, {}, extra)
    return workdir


def changes_of(flags: argparse.Namespace, row: str) -> tuple[str, dict[str, str]]:
    """The variant of configs/d2llm.py that a row is, the student's own but for the ablations and baselines, and the keys that it changes."""
    if "=" in row:
        name, _, value = row.partition("=")
        return flags.variant, {f"loss.{name}": value}
    if row in ONE_FILE:
        changed = ablated("cosine") if row.startswith("cos-") else {}
        return flags.variant, changed | {ONE_FILE[row]: "", f"unlabelled_{ONE_FILE[row]}": ""}
    if row == "half":
        whole = jdistill.load(str(run(flags, "student", 0) / "export")).config.num_layers
        return flags.variant, {"student.layers": str(whole // 2)}
    if row in BI_ENCODERS:
        rank = equal_rank(run(flags, "student", 0), BI_ENCODERS[row])
        keys = {"lora.rank": str(rank), "lora.alpha": f"{2 * rank}.0", "pooling": BI_ENCODERS[row]}
        negatives = d2llm.VARIANTS[flags.variant].get("loss.random_negatives")  # those that the student has
        keys |= (
            {"loss.random_negatives": str(negatives)} if negatives and not given(flags, "loss.random_negatives") else {}
        )
        # Contrastive alone, whatever the command line says for the students.
        return "bi_encoder", keys | WITHOUT_JUDGE | {"loss.delta": "0.0", "loss.vectors": "0.0"}
    of_student: dict[str, dict[str, str]] = {
        "student": {},
        "labels": dict(WITHOUT_JUDGE),
        "single": {"interaction": "single"},
    }
    if row in ABLATIONS:
        return flags.variant, ablated(row)
    return (flags.variant, of_student[row]) if row in of_student else (row, {})


def ablated(variant: str) -> dict[str, str]:
    """What a variant of configs/d2llm.py changes, as keys, so that another variant can have it changed too."""
    return {key: str(value) for key, value in d2llm.VARIANTS[variant].items()}


def given(flags: argparse.Namespace, key: str) -> bool:
    """Whether the command line has a value of a key for all rows."""
    return any(part.startswith(f"--config.{key}=") for part in flags.extra)


def judge_of(flags: argparse.Namespace) -> Path:
    """The tuned judge's adapter."""
    return flags.judge or flags.workdir / "student-0" / "tune" / "adapter"


def equal_rank(student: Path, pooling: str) -> int:
    """The adapters' rank with which a bi-encoder trains as many parameters as the student: adapters, pooler and module.

    Args:
      student: its run.
      pooling: of the bi-encoder: pma, which has the pooler's parameters too, or one that has none.
    """
    cfg = json.loads((student / "config.json").read_text())["lora"]
    scorer = load_pair_scorer(str(student / "export"))
    params = scorer.encoder.params
    kernels = flatten_dict(params, sep="/")
    of_one_rank = sum(sum(np.shape(kernels[path])) for path in lora.paths(params, cfg["paths"]))
    lacking = (scorer.params,) if pooling == scorer.encoder.pooling else (scorer.encoder.pooler, scorer.params)
    others = sum(np.size(x) for x in jax.tree.leaves(lacking))
    return cfg["rank"] + round(others / of_one_rank)


def other_file(judged: JudgedPairs, cfg: ConfigDict, row: str, folder: Path) -> dict[str, Any]:
    """The figures of a student that learnt from one file on the other."""
    left_out = replace(judged, sets=tuple(one for one in judged.sets if one.branch == ONE_FILE[row]))
    return evaluate_judged(cfg, left_out, load_pair_scorer(str(folder / "export")))


def untuned(flags: argparse.Namespace, cfg: ConfigDict) -> tuple[JudgedPairs, PairScorer]:
    """The language model as it is: a judge of the run's pairs, and a bi-encoder (mean pooling, cosines)."""
    cfg.judge.adapter = ""
    model = replace(jdistill.load(flags.teacher), pooling="mean")
    return read_judged(cfg, model), PairScorer(model, None, "cosine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("teacher", "symmetric", "asymmetric"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--variant", default="", choices=("", "calibrated", "beside_cosine"), help="of the student")
    parser.add_argument("--workdir", type=Path, default=Path("runs/d2llm-table"))
    parser.add_argument("--judge", type=Path, help="adapter of a tuned judge; without: tuned in the run student-0")
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    if Path(flags.symmetric).stem == Path(flags.asymmetric).stem:
        parser.error("the two files need names of their own, by which the tables are told apart")
    keep_compiled_programs()
    setup_logging()
    done: dict[str, list[dict[str, Any]]] = {}
    questions: dict[str, list[dict[str, Any]]] = {}
    for row in flags.rows:
        folders = [run(flags, row, seed) for seed in flags.seeds]
        results = [json.loads((folder / "results.json").read_text()) for folder in folders]
        done[row], questions[row] = ([of[key] for of in results] for key in ("pairs", "questions"))
        keep_dev(flags, row, results)
    whole = run(flags, "student", 0)
    first = json.loads((whole / "results.json").read_text())["pairs"]
    cfg = config_of(whole, d2llm.get_config())
    if done.keys() & ONE_FILE.keys():
        cfg.judge.adapter = str(judge_of(flags))
        judged = read_judged(cfg, jdistill.load(flags.teacher))
        for row in done.keys() & ONE_FILE.keys():
            for seed, pairs in zip(flags.seeds, done[row], strict=True):
                pairs |= other_file(judged, cfg, row, flags.workdir / f"{row}-{seed}")
    judged, bi_encoder = untuned(flags, cfg)
    plain = evaluate_judged(cfg, judged, bi_encoder)
    for name, figures in first.items():
        print(
            f"\n{name}\n| row | seeds | accuracy | ap | prior | precision | recall | of the judge's ap above the prior |\n|{' --- |' * 8}"
        )
        print(line("language model as bi-encoder", [plain[name]["student"]], figures["teacher"]))
        print(line("judge, not tuned", [plain[name]["teacher"]], figures["teacher"]))
        print(line("judge, tuned", [figures["teacher"]], figures["teacher"]))
        for row, found in done.items():
            of_file = [pairs[name]["student"] for pairs in found if name in pairs]
            if of_file:
                print(line(row, of_file, figures["teacher"]), flush=True)
    of_students = {
        row: [{name: of["student"] for name, of in pairs.items()} for pairs in of_row] for row, of_row in done.items()
    }
    once = {
        "language model as bi-encoder": [{name: of["student"] for name, of in plain.items()}],
        "judge, not tuned": [{name: of["teacher"] for name, of in plain.items()}],
        "judge, tuned": [{name: of["teacher"] for name, of in first.items()}],
    }
    keep_pairs(flags, of_students | once)
    questions["language model as bi-encoder"] = [
        evaluate_questions(judged, bi_encoder, cfg.rescore)["test"]
    ]  # takes longest
    keep_questions(flags, questions)
    print("\n".join(retrieval_lines(questions)))


if __name__ == "__main__":
    main()
