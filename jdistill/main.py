"""The command: python -m jdistill.main --config configs/simtde.py --workdir runs/simtde [--config.key=value …]

Trains, exports, evaluates, reports; the same command again resumes where it stopped. --dry_run prints the plan instead.
"""

from __future__ import annotations

from jdistill.host_memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags
from ml_collections import ConfigDict, config_flags

from jdistill import corpus as text
from jdistill import encoder, index, plan, sharding
from jdistill.compile_cache import keep_compiled_programs
from jdistill.data.triplets import Triplets
from jdistill.encoder import Encoder
from jdistill.errors import UserError, exits_cleanly
from jdistill.evals import agreement, speed, sts
from jdistill.evaluate import evaluate
from jdistill.export import export, write_files
from jdistill.methods import METHODS
from jdistill.methods.contract import Method, Stage, Start
from jdistill.model_card import write_card
from jdistill.models.pooling import known
from jdistill.progress import clock, log, setup_logging
from jdistill.report import write_report
from jdistill.teacher import Teacher, open_teacher
from jdistill.train import Data, Interrupted, train
from jdistill.workdir import settle_config, write_json

CONFIG = config_flags.DEFINE_config_file(
    "config", help_string="configs/NAME.py or configs/NAME.py:VARIANT; keys as --config.key=value"
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "the run's folder: config, checkpoints, metrics, export, results, report"
)
DRY_RUN = flags.DEFINE_bool("dry_run", False, "print the plan (parameters, steps, memory, disk, time) and stop")
COORDINATOR = flags.DEFINE_string(
    "coordinator", "", "HOST:PORT of process 0 where a run has several processes; auto: from Slurm, Kubernetes or MPI"
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", 1, "how many processes the run has, with --coordinator")
PROCESS_ID = flags.DEFINE_integer("process_id", 0, "which of them this one is, from 0")


def run(cfg: ConfigDict, workdir: Path, dry_run: bool) -> None:
    """One run from its config to its report; every part that is already in `workdir` is taken from there."""
    if cfg.method not in METHODS:
        raise UserError(f"--config.method={cfg.method!r} is not one of {', '.join(METHODS)}")
    if not dry_run:
        settle_config(cfg, workdir)
        if (workdir / "results.json").is_file():
            log.info("%s is complete: see %s and %s", workdir, workdir / "results.json", workdir / "report.html")
            return
    log.info("devices: %s", sharding.describe())
    teacher = open_teacher(cfg.teacher or cfg.start, cfg.max_length, "float32")
    own_start = None if cfg.start and cfg.teacher else teacher.encoder
    student = own_start or encoder.load(_start_source(cfg), key="config.start")
    if cfg.max_length:
        student = replace(student, max_length=min(cfg.max_length, student.max_length))
    student = replace(
        student, prompts=student.prompts | text.configured_prompts(cfg), pooling=known(cfg.pooling or student.pooling)
    )
    words = text.read_corpus(cfg, teacher)
    answers = text.Answers(cfg, words, teacher)
    stages = METHODS[cfg.method](cfg)
    # Before the first stage trains for hours: a file that cannot be read should be known now.
    triplets = text.read_labelled(cfg) if any(stage.data == "triplets" for stage in stages) else None
    done: list[dict[str, Any]] = []
    is_teacher = own_start is not None
    for stage in stages:
        folder = workdir / stage.name
        method, data = open_stage(stage, student, is_teacher, teacher, words, answers, triplets, made_up=dry_run)
        is_teacher = False
        if dry_run:
            print(plan.describe(stage, method, data, teacher, words))
            student = method.student
            continue
        vectors = answers.held_out()
        if sharding.is_first_process():
            write_files(method.student, folder / "student")
            log.info(
                "student: %d parameters, %.0f %% of the teacher's",
                method.student.num_params,
                100 * share(method, teacher),
            )
        sharding.wait_for_all("stage folder")
        # Fine-tuning leaves the teacher on purpose, so agreement with it would choose the least tuned checkpoint.
        by_agreement = stage.data == "texts" and stage.teacher
        score = dev_score(cfg, words.held_out, vectors, by_agreement)
        student, seconds, steps = train(stage.cfg, method, data, folder, score)
        sentences = steps * stage.cfg.batch_size * data.texts_per_row
        done.append({"name": stage.name, "seconds": seconds, "steps": steps, "sentences": sentences})
    if not dry_run:
        if sharding.is_first_process():
            finish(cfg, workdir, student, teacher, words, answers.held_out(), done)
        sharding.wait_for_all("results")


def open_stage(
    stage: Stage,
    student: Encoder,
    is_teacher: bool,
    teacher: Teacher,
    words: text.Corpus,
    answers: text.Answers,
    triplets: Triplets | None,
    made_up: bool,
) -> tuple[Method, Data]:
    """A stage's method, bound to the student that it starts from, and its data. made_up: random vectors for answers."""

    def random(rows: np.ndarray) -> np.ndarray:
        return np.random.default_rng(0).standard_normal((len(rows), teacher.width), np.float32)

    look_up = random if made_up else answers.train
    of_teacher = look_up if stage.teacher else None
    if triplets is None or stage.data == "texts":
        tokens = text.tokenize(stage.cfg, words, student)
        data = text.text_data(stage.cfg, words, tokens, of_teacher, student.config.pad_token_id, stage.others)
    else:
        of_triplets, data = text.triplet_data(stage.cfg, triplets, student)
        tokens = of_triplets.passages
    return stage.build(stage.cfg, Start(student, is_teacher, teacher.width, tokens, look_up)), data


def finish(
    cfg: ConfigDict,
    workdir: Path,
    student: Encoder,
    teacher: Teacher,
    words: text.Corpus,
    held_out: np.ndarray,
    stages: list[dict[str, Any]],
) -> None:
    """Exports, evaluates what was exported, indexes, and writes results.json (last: it marks the run complete) and the report."""
    checks = export(student, workdir / "export", onnx=cfg.onnx)
    model = encoder.load(str(workdir / "export"))
    results: dict[str, Any] = {
        "command": command_line(),
        "student": {"name": "student", "num_params": model.num_params, "bytes": 4 * model.num_params},
        "export_max_abs_difference": checks,
        "training": {
            **{what: sum(stage[what] for stage in stages) for what in ("seconds", "steps", "sentences")},
            "stages": stages,
            "devices": sharding.describe(),
            "texts": len(words.train),
            "removed_evaluation_texts": words.removed,
        },
    }
    sets = {"senteval": cfg.senteval, "beir": cfg.beir, "pairs": cfg.dev_pairs}
    search = {"index": cfg.index, "index_effort": cfg.index_effort}
    results |= evaluate(model, **sets, **search)
    if teacher.encoder is not None:
        results["teacher"] = {
            "name": cfg.teacher,
            "num_params": teacher.encoder.num_params,
            "bytes": 4 * teacher.encoder.num_params,
        }
        if cfg.evaluate_teacher and any(sets.values()):
            of_teacher = evaluate(teacher.encoder, **sets, **search)
            results |= {f"teacher_{name}": value for name, value in of_teacher.items()}
    if words.held_out:
        results["agreement"] = agreement.agreement(model.encode(words.held_out), held_out)
        if cfg.latency_texts:
            pair = {"teacher": teacher.encoder, "student": model} if teacher.encoder else {"student": model}
            results["speed"] = speed.compare(pair, words.held_out[: cfg.latency_texts], repeats=3)
    if cfg.index_texts:
        texts = (words.train + words.held_out)[: cfg.index_texts]
        made = index.build(model.encode(texts, show_progress=True), cfg.index, cfg.index_effort)
        made.save(workdir / "index", texts, model.fingerprint())
    write_json(workdir / "results.json", results)
    write_card(workdir, workdir / "export")
    write_report(workdir)
    for line in headline(results):
        log.info(line)
    log.info("trained in %s; see %s", clock(results["training"]["seconds"]), workdir / "report.html")


def dev_score(cfg: ConfigDict, texts: list[str], teacher_vectors: np.ndarray, by_agreement: bool) -> Any:
    """Encoder -> figures at a checkpoint; "score" selects. It is Spearman on cfg.dev_pairs, agreement with the teacher where
    by_agreement says so, or the mean of both: a few hundred pairs alone move by half a point from one checkpoint to the
    next, and would choose an early one by luck. Without a score the last checkpoint is taken."""

    def score(model: Encoder) -> dict[str, float]:
        figures: dict[str, float] = {}
        if texts:
            agrees = agreement.agreement(model.encode(texts), teacher_vectors)
            figures = {name: agrees[name] for name in ("spearman", "mean_cosine") if agrees.get(name) is not None}
        if cfg.dev_pairs:
            figures["pairs"] = sts.evaluate_pairs(model, Path(cfg.dev_pairs))
        chosen_by = [
            name for name, counts in (("pairs", True), ("spearman", by_agreement)) if counts and name in figures
        ]
        return figures | ({"score": float(np.mean([figures[name] for name in chosen_by]))} if chosen_by else {})

    return score


def headline(results: dict[str, Any]) -> list[str]:
    """The result a reader wants first, as log lines."""
    lines = []
    if "Avg" in results.get("sts", {}):
        teacher = results.get("teacher_sts", {}).get("Avg")
        lines.append(
            f"STS average {results['sts']['Avg']:.2f}" + (f" of the teacher's {teacher:.2f}" if teacher else "")
        )
    if "agreement" in results:
        lines.append(
            f"agreement with the teacher on held-out text: Spearman of pair cosines {results['agreement']['spearman']:.2f}"
        )
    return lines


def share(method: Method, teacher: Teacher) -> float:
    return method.student.num_params / teacher.encoder.num_params if teacher.encoder else float("nan")


def _start_source(cfg: ConfigDict) -> str:
    if not cfg.start:
        raise UserError(
            f"--config.teacher={cfg.teacher} is known by its answers only; name the encoder that the student starts as in --config.start"
        )
    return cfg.start


def command_line() -> str:
    """The command that runs this again."""
    return shlex.join([os.path.basename(sys.executable), "-m", "jdistill.main", *sys.argv[1:]])


@exits_cleanly
def command(_: list[str]) -> int:
    keep_compiled_programs()
    setup_logging()
    if not WORKDIR.value and not DRY_RUN.value:
        raise UserError("--workdir is missing: the folder for this run's checkpoints and results")
    sharding.connect(COORDINATOR.value, NUM_PROCESSES.value, PROCESS_ID.value)
    try:
        run(CONFIG.value, Path(WORKDIR.value or "."), DRY_RUN.value)
    except Interrupted as stop:
        log.info(
            "stopped by %s at step %d, which is saved; resume with: %s",
            stop.name,
            stop.step,
            command_line(),
        )
    return 0


def cli() -> None:
    app.run(command, flags_parser=_parse)


def _parse(argv: list[str]) -> list[str]:
    try:
        return flags.FLAGS(argv)
    except (flags.Error, AttributeError, KeyError, ValueError, TypeError, FileNotFoundError) as error:
        print(f"error: {str(error).strip()}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    cli()
