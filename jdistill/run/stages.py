"""A run from its config: what all its stages share, the stages in their order, and what is made of the last one's student."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.folders import replacing
from jdistill.core.memory import give_back_freed_memory
from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.data.sets.triplets import Triplets
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats import peft
from jdistill.encoder.formats.st_writer import WRITTEN, write_files
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals import agreement, sts
from jdistill.evals.collapse import SAMPLE
from jdistill.evals.pair_labels import average_precision
from jdistill.feeds import corpus as text
from jdistill.feeds.judged import (
    Judged,
    candidate_data,
    judgement_data,
    read_judged,
)
from jdistill.feeds.stage import Stage, Start, check_start
from jdistill.feeds.task import (
    Labelled,
    labelled_data,
    read_labelled,
    task_scores,
)
from jdistill.methods import METHODS
from jdistill.methods.classify import SCRATCH
from jdistill.models.interaction import BRANCHES, interaction_of
from jdistill.models.pooling import known
from jdistill.models.registry import architecture_of, names_of
from jdistill.run import dry_run, preflight
from jdistill.teachers.embeddings import Teacher, open_teacher
from jdistill.train.loop import Data, train
from jdistill.train.method import Method

OF_JUDGED = ("judgements", "candidates")  # stage data that comes from labelled pairs and a judge


@dataclass(frozen=True)
class Run:
    """What the stages of a run share. start: the encoder that the student starts as, is_teacher: the teacher itself.
    triplets, labelled, judged: None where no stage has any."""

    cfg: ConfigDict
    teacher: Teacher
    start: Encoder
    is_teacher: bool
    words: text.Corpus
    answers: text.Answers
    stages: tuple[Stage, ...]
    triplets: Triplets | None
    labelled: Labelled | None
    judged: Judged | None


@dataclass(frozen=True)
class Trained:
    """student: of the last stage. params: all that it trained, beside the student a classifier's "head" or an interaction module "iem".
    judged: with the judge as its stage left it.

    stages: name, seconds, steps and sentences of each, as results.json has them.
    """

    student: Encoder
    params: Tree
    judged: Judged | None
    stages: list[dict[str, Any]]


def stages_of(cfg: ConfigDict) -> tuple[Stage, ...]:
    """The stages of the config's method. Raises UserError for a method that there is not."""
    if cfg.method not in METHODS:
        raise UserError(f"--config.method={cfg.method!r} is not one of {', '.join(METHODS)}")
    return METHODS[cfg.method](cfg)


def prepare(cfg: ConfigDict) -> Run:
    """Reads everything that a config names. Raises UserError for what is not there or does not fit."""
    stages = stages_of(cfg)
    teacher = open_teacher(cfg.teacher or cfg.start, cfg.max_length, cfg.teacher_dtype, cfg.teacher_pooling)
    start = task_start(cfg)
    own_start = None if start or (cfg.start and cfg.teacher) else teacher.encoder
    student = own_start or loading.load(start or _start_source(cfg), key="config.student" if start else "config.start")
    if cfg.max_length:
        student = replace(student, max_length=min(cfg.max_length, student.max_length))
    student = replace(
        student, prompts=student.prompts | text.configured_prompts(cfg), pooling=known(cfg.pooling or student.pooling)
    )
    check_start(stages, student, own_start is not None, teacher.width)
    labelled = read_labelled(cfg) if any(stage.data == "labelled" for stage in stages) else None
    judged = None
    if any(stage.data in OF_JUDGED for stage in stages):
        if teacher.encoder is None:
            raise UserError(
                f"--config.teacher={cfg.teacher}: a judge of pairs is a language model, and this gives vectors only"
            )
        if cfg.start and not architecture_of(student.config).decoder:  # of a teacher alone read_judged says so
            raise UserError(
                f"--config.start={cfg.start} is a {student.config.model_type}: the student of a judge is a decoder of its kind"
            )
        judged = read_judged(cfg, teacher.encoder)
    # A run on labelled data alone needs no text; one on triplets alone may have some, to be judged on and to be found in.
    kinds = {stage.data for stage in stages}
    has_text = bool(cfg.text) or teacher.texts is not None
    needs_text = "texts" in kinds or ("triplets" in kinds and has_text)
    words = text.read_corpus(cfg, teacher) if needs_text else text.Corpus([], [], 0)
    # Before the first stage trains for hours: a file that cannot be read should be known now.
    triplets = text.read_labelled(cfg) if any(stage.data == "triplets" for stage in stages) else None
    if not (needs_text or triplets or judged):  # which have read the evaluation sets already
        deque(text.evaluation_texts(cfg), maxlen=0)
    answers = text.Answers(cfg, words, teacher)
    return Run(cfg, teacher, student, own_start is not None, words, answers, stages, triplets, labelled, judged)


def plans(run: Run) -> Iterator[str]:
    """What each stage would take, for --dry_run; writes nothing."""
    student, is_teacher = run.start, run.is_teacher
    for stage in run.stages:
        method, data = open_stage(run, stage, student, is_teacher, made_up=True)
        asks = run.judged if stage.data == "candidates" else None
        yield dry_run.describe(stage, method, data, run.teacher, run.words, asks)
        if stage.trains == "student":
            student, is_teacher = method.student, False


def train_stages(run: Run, workdir: Path, give_up: Callable[[int, float], bool] | None = None) -> Trained:
    """Trains the stages in their folders, each from its newest checkpoint. give_up: see train.train, of the last stage."""
    student, is_teacher = run.start, run.is_teacher
    done: list[dict[str, Any]] = []
    params: Tree = {}
    check_answers(run)
    for stage in run.stages:
        folder = workdir / stage.name
        method, data = open_stage(run, stage, student, is_teacher)
        vectors = run.answers.held_out()
        if stage.trains == "student":
            preflight.check_index(run.cfg, method.student.dim, indexed(run))
        preflight.check_room(run.cfg, method, folder, indexed(run))
        if sharding.is_first_process() and stage.trains == "student":
            with replacing(folder / "student", "student", key="the student's files", legacy=WRITTEN) as beside:
                write_files(method.student, beside)
            of_teachers = 100 * share(method, run.teacher)
            log.info("student: %d parameters, %.0f %% of the teacher's", method.student.num_params, of_teachers)
        sharding.wait_for_all("stage folder")
        of_encoder = dev_score(run.cfg, run.words.held_out, vectors, agrees(stage))
        score = stage_score(run, stage, method, of_encoder)
        last = stage is run.stages[-1]
        params, seconds, steps = train(stage.cfg, method, data, folder, score, give_up if last else None)
        give_back_freed_memory()
        if stage.trains == "judge" and run.judged is not None:
            if sharding.is_first_process():
                with replacing(folder / "adapter", "adapter", key="the adapter", legacy=("adapter_*",)) as beside:
                    save_adapters(method, params, stage.cfg.lora.alpha, beside)
            run = replace(run, judged=run.judged.with_model(method.trained(params)))
        else:
            student, is_teacher = method.trained(params), False
        sentences = steps * stage.cfg.batch_size * data.texts_per_row
        done.append({"name": stage.name, "seconds": seconds, "steps": steps, "sentences": sentences})
    return Trained(student, params, run.judged, done)


def check_answers(run: Run) -> None:
    """Looks at the teacher's answers to a few texts, all of which a run asks of it anyway. Raises UserError where they are all alike."""
    learnt = any(stage.teacher for stage in run.stages)
    texts = (run.words.train if learnt else run.words.held_out)[:SAMPLE]
    if texts:
        preflight.check_teacher(run.teacher, run.start, texts, run.answers.of(texts))


def indexed(run: Run) -> int:
    """How many texts the run has for its index."""
    return len(run.words.train) + len(run.words.held_out) or len(passages(run.judged))


def passages(judged: Judged | None) -> list[str]:
    """The distinct passages of all files of labelled pairs, those that answer questions first."""
    sets = sorted(judged.sets, key=lambda one: one.branch == BRANCHES[0]) if judged else []
    return list(dict.fromkeys(text for one in sets for text in one.passages))


def agrees(stage: Stage) -> bool:
    """Whether agreement with the teacher may choose a checkpoint. Fine-tuning leaves the teacher on purpose, so that agreement would
    choose the least tuned one."""
    return stage.data == "texts" and stage.teacher


def has_own_score(stage: Stage) -> bool:
    """Whether the stage's checkpoints have a dev score without cfg.dev_pairs."""
    return agrees(stage) or stage.data in ("labelled", *OF_JUDGED)


def save_adapters(method: Method, params: Tree, alpha: float, folder: Path) -> None:
    """The judge's adapters as PEFT loads them."""
    names = {path: name for path, (name, _) in names_of(method.student.config).items()}
    peft.save(folder, params["adapters"], alpha, names)


def stage_score(
    run: Run, stage: Stage, method: Method, of_encoder: Callable[[Encoder], dict[str, float]]
) -> Callable[[Tree], dict[str, float]]:
    """Parameters -> the stage's dev figures: those of its encoder, or, on a labelled task, of its classifier on the dev split, or, where
    pairs are judged, the average precision of the judge or the student on the dev pairs."""
    judged, labelled = run.judged, run.labelled
    if stage.data in OF_JUDGED and judged is not None:
        return lambda params: dev_precision(stage, method, judged, params)
    if stage.data != "labelled" or labelled is None:
        return lambda params: of_encoder(method.trained(params))

    def of_task(params: Tree) -> dict[str, float]:
        found = task_scores(labelled.task, method.trained(params), params["head"], labelled.task.dev)
        return found | {"score": float(np.mean(list(found.values())))}

    return of_task


def open_stage(
    run: Run, stage: Stage, student: Encoder, is_teacher: bool, made_up: bool = False
) -> tuple[Method, Data]:
    """A stage's method, bound to the student that it starts from, and its data. made_up: random vectors for answers."""

    def random(rows: np.ndarray) -> np.ndarray:
        return np.random.default_rng(0).standard_normal((len(rows), run.teacher.width), np.float32)

    task = run.labelled.task if run.labelled else None
    look_up = random if made_up else run.answers.train
    of_teacher = look_up if stage.teacher else None
    if stage.tokenizer:
        student = replace(student, tokenizer=stage.tokenizer(student))
    judge = None
    if stage.data in OF_JUDGED and run.judged is not None:
        judge = next(iter(run.judged.judges.values()))
        of_judge = stage.data == "judgements"
        tokens, data = (
            judgement_data(stage.cfg, run.judged)
            if of_judge
            else candidate_data(stage.cfg, run.judged, student, made_up)
        )
    elif stage.data == "labelled" and run.labelled is not None:
        tokens, data = labelled_data(stage.cfg, run.labelled, student)
    elif run.triplets is None or stage.data == "texts":
        tokens = text.tokenize(stage.cfg, run.words, student)
        data = text.text_data(stage.cfg, run.words, tokens, of_teacher, student.config.pad_token_id, stage.others)
    else:
        of_triplets, data = text.triplet_data(stage.cfg, run.triplets, student)
        # What is fitted to the text, such as the projection's start, is to fit the corpus as well as the labelled rows.
        tokens = of_triplets.passages
        if run.words.train:
            sample = text.sample(run.words, len(tokens.lengths))
            tokens = tokens.joined(text.tokens_of(stage.cfg, student, sample))
    return stage.build(stage.cfg, Start(student, is_teacher, run.teacher.width, tokens, look_up, task, judge)), data


def dev_precision(stage: Stage, method: Method, judged: Judged, params: Tree) -> dict[str, float]:
    """Average precision on the dev pairs of each file, and their mean as "score"."""
    model, found = method.trained(params), {}
    for one in (one for one in judged.sets if len(one.dev)):
        queries, passages = one.dev.queries, one.dev.passages
        if stage.trains == "judge":
            z = replace(judged.judges[one.branch], model=replace(model, dtype=stage.cfg.teacher_dtype)).score(
                queries, passages
            )[0]
        else:
            scorer = PairScorer(model, params.get("iem"), interaction_of(stage.cfg))
            z = scorer.score(queries, passages, one.branch == BRANCHES[0])
        found[one.name] = average_precision(z, one.dev.labels)
    return found | ({"score": float(np.mean(list(found.values())))} if found else {})


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


def share(method: Method, teacher: Teacher) -> float:
    return method.student.num_params / teacher.encoder.num_params if teacher.encoder else float("nan")


def task_start(cfg: ConfigDict) -> str:
    """The source of the student that a task is learnt by: cfg.student, or its export where it is a run's folder; "" for one from
    scratch, and for configs in which cfg.student is a block of keys."""
    if not isinstance(cfg.student, str) or cfg.student == SCRATCH:
        return ""
    exported = Path(cfg.student) / "export"
    return str(exported) if exported.is_dir() else cfg.student


def _start_source(cfg: ConfigDict) -> str:
    if not cfg.start:
        raise UserError(
            f"--config.teacher={cfg.teacher} is known by its answers only; name the encoder that the student starts as in --config.start"
        )
    return cfg.start
