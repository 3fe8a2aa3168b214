"""A run from its config: what all its stages share, the stages in their order, and what is made of the last one's student."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill import corpus as text
from jdistill import encoder, index, plan, sharding
from jdistill.data.triplets import Triplets
from jdistill.encoder import Encoder
from jdistill.errors import UserError
from jdistill.evals import agreement, speed, sts
from jdistill.evaluate import evaluate
from jdistill.export import export, write_files
from jdistill.methods import METHODS
from jdistill.methods.contract import Method, Stage, Start
from jdistill.model_card import write_card
from jdistill.models.pooling import known
from jdistill.progress import clock, log
from jdistill.report import write_report
from jdistill.teacher import Teacher, open_teacher
from jdistill.train import Data, train
from jdistill.workdir import write_json


@dataclass(frozen=True)
class Run:
    """What the stages of a run share. start: the encoder that the student starts as, is_teacher: the teacher itself.
    triplets: None where no stage has any."""

    cfg: ConfigDict
    teacher: Teacher
    start: Encoder
    is_teacher: bool
    words: text.Corpus
    answers: text.Answers
    stages: tuple[Stage, ...]
    triplets: Triplets | None


@dataclass(frozen=True)
class Trained:
    """student: of the last stage. stages: name, seconds, steps and sentences of each, as results.json has them. figures: the
    student's dev figures in the last stage, "score" among them where there is one."""

    student: Encoder
    stages: list[dict[str, Any]]
    figures: Callable[[], dict[str, float]]


def stages_of(cfg: ConfigDict) -> tuple[Stage, ...]:
    """The stages of the config's method. Raises UserError for a method that there is not."""
    if cfg.method not in METHODS:
        raise UserError(f"--config.method={cfg.method!r} is not one of {', '.join(METHODS)}")
    return METHODS[cfg.method](cfg)


def prepare(cfg: ConfigDict) -> Run:
    """Reads everything that a config names. Raises UserError for what is not there or does not fit."""
    stages = stages_of(cfg)
    teacher = open_teacher(cfg.teacher or cfg.start, cfg.max_length, "float32", cfg.teacher_pooling)
    own_start = None if cfg.start and cfg.teacher else teacher.encoder
    student = own_start or encoder.load(_start_source(cfg), key="config.start")
    if cfg.max_length:
        student = replace(student, max_length=min(cfg.max_length, student.max_length))
    student = replace(
        student, prompts=student.prompts | text.configured_prompts(cfg), pooling=known(cfg.pooling or student.pooling)
    )
    words = text.read_corpus(cfg, teacher)
    # Before the first stage trains for hours: a file that cannot be read should be known now.
    triplets = text.read_labelled(cfg) if any(stage.data == "triplets" for stage in stages) else None
    answers = text.Answers(cfg, words, teacher)
    return Run(cfg, teacher, student, own_start is not None, words, answers, stages, triplets)


def plans(run: Run) -> Iterator[str]:
    """What each stage would take, for --dry_run; writes nothing."""
    student, is_teacher = run.start, run.is_teacher
    for stage in run.stages:
        method, data = open_stage(run, stage, student, is_teacher, made_up=True)
        yield plan.describe(stage, method, data, run.teacher, run.words)
        student, is_teacher = method.student, False


def train_stages(run: Run, workdir: Path, give_up: Callable[[int, float], bool] | None = None) -> Trained:
    """Trains the stages in their folders, each from its newest checkpoint. give_up: see train.train, of the last stage."""
    student, is_teacher = run.start, run.is_teacher
    done: list[dict[str, Any]] = []
    score: Callable[[Encoder], dict[str, float]] = lambda _: {}  # noqa: E731 - of no stage
    for stage in run.stages:
        folder = workdir / stage.name
        method, data = open_stage(run, stage, student, is_teacher)
        is_teacher = False
        vectors = run.answers.held_out()
        if sharding.is_first_process():
            write_files(method.student, folder / "student")
            log.info(
                "student: %d parameters, %.0f %% of the teacher's",
                method.student.num_params,
                100 * share(method, run.teacher),
            )
        sharding.wait_for_all("stage folder")
        # Fine-tuning leaves the teacher on purpose, so agreement with it would choose the least tuned checkpoint.
        score = dev_score(run.cfg, run.words.held_out, vectors, stage.data == "texts" and stage.teacher)
        last = stage is run.stages[-1]
        student, seconds, steps = train(stage.cfg, method, data, folder, score, give_up if last else None)
        sentences = steps * stage.cfg.batch_size * data.texts_per_row
        done.append({"name": stage.name, "seconds": seconds, "steps": steps, "sentences": sentences})
    return Trained(student, done, lambda: score(student))


def open_stage(
    run: Run, stage: Stage, student: Encoder, is_teacher: bool, made_up: bool = False
) -> tuple[Method, Data]:
    """A stage's method, bound to the student that it starts from, and its data. made_up: random vectors for answers."""

    def random(rows: np.ndarray) -> np.ndarray:
        return np.random.default_rng(0).standard_normal((len(rows), run.teacher.width), np.float32)

    look_up = random if made_up else run.answers.train
    of_teacher = look_up if stage.teacher else None
    if stage.tokenizer:
        student = replace(student, tokenizer=stage.tokenizer(student))
    if run.triplets is None or stage.data == "texts":
        tokens = text.tokenize(stage.cfg, run.words, student)
        data = text.text_data(stage.cfg, run.words, tokens, of_teacher, student.config.pad_token_id, stage.others)
    else:
        of_triplets, data = text.triplet_data(stage.cfg, run.triplets, student)
        tokens = of_triplets.passages
    return stage.build(stage.cfg, Start(student, is_teacher, run.teacher.width, tokens, look_up)), data


def finish(run: Run, trained: Trained, workdir: Path, command: str) -> None:
    """Exports, evaluates what was exported, indexes, and writes results.json (last: it marks the run complete) and the report.

    command: what runs this again, for the reader of the results.
    """
    cfg, teacher, words, stages = run.cfg, run.teacher, run.words, trained.stages
    checks = export(trained.student, workdir / "export", onnx=cfg.onnx)
    model = encoder.load(str(workdir / "export"))
    results: dict[str, Any] = {
        "command": command,
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
        results["agreement"] = agreement.agreement(model.encode(words.held_out), run.answers.held_out())
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
