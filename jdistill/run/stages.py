"""A run from its config: what all its stages share, and the stages in their order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.absent import absent_mesh
from jdistill.core.errors import UserError
from jdistill.core.folders import replacing
from jdistill.core.machines import Machine, machine_named
from jdistill.core.memory import give_back_freed_memory
from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import WRITTEN, write_files
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.evaluation_sets import evaluation_texts
from jdistill.feeds.feed import Feed
from jdistill.feeds.parallel import read_text_and_pairs
from jdistill.feeds.roles import check_roles
from jdistill.feeds.shared import Shared
from jdistill.feeds.stage import Stage, Start, check_start, origins_of, tell_unread_sets
from jdistill.feeds.teacher_embeddings import TeacherEmbeddings
from jdistill.feeds.tokens import configured_prompts, tell_cut_lengths
from jdistill.feeds.vocabulary import with_cut_vocabulary
from jdistill.methods import METHODS
from jdistill.models.attention import use_attention
from jdistill.models.pooling import resolve_pooler
from jdistill.report.beside import model_beside
from jdistill.run import dry_run, machine_plan, preflight
from jdistill.run.search_index import check_index_owner
from jdistill.students.vocabulary import check_cut, saved_line
from jdistill.teachers.embeddings import Teacher, open_teacher
from jdistill.train.dataset import Data
from jdistill.train.early_end import GiveUp
from jdistill.train.loop import total_steps, train
from jdistill.train.method import Method
from jdistill.train.origins import check_goes_on


@dataclass(frozen=True)
class Run:
    """Stages with their training data.

    Args:
      shared: what the feeds have in common: teacher, start of the student, text.
      is_teacher: whether the student starts as the teacher itself.
      feeds: of each stage.
    """

    cfg: ConfigDict
    shared: Shared
    is_teacher: bool
    stages: tuple[Stage, ...]
    feeds: tuple[Feed, ...]


@dataclass(frozen=True)
class Trained:
    """What the stages leave.

    Args:
      student: of the last stage.
      params: all that it trained; what stands beside the student is its feed's to save.
      feed: of the last stage, as it ended.
      stages: name, seconds, steps and sentences of each, as results.json has them.
    """

    student: Encoder
    params: Tree
    feed: Feed
    stages: list[dict[str, Any]]


def stages_of(cfg: ConfigDict) -> tuple[Stage, ...]:
    """The stages of the config's method. Raises UserError for a method that there is not, and for an index that its student could
    not ask."""
    if cfg.method not in METHODS:
        raise UserError(f"--config.method={cfg.method!r} is not one of {', '.join(METHODS)}")
    stages = METHODS[cfg.method](cfg)
    check_index_owner(cfg, stages[-1])
    return stages


def prepare(cfg: ConfigDict, mesh: Mesh | None = None) -> Run:
    """Reads everything that a config names, before the first stage trains for hours. mesh: the devices that a plan is for; None: those
    that are there. Raises UserError for what is not there or does not fit."""
    stages = stages_of(cfg)
    with sharding.planning(mesh or sharding.global_mesh()):
        preflight.check_attention(cfg)
        preflight.check_batches(cfg, {stage.name: stage.cfg for stage in stages})
    tell_unread_sets(cfg, stages)
    use_attention(cfg.attention)
    teacher = configured_teacher(cfg)
    start, is_teacher = open_start(cfg, stages[0], teacher)
    start = check_roles(cfg, teacher, start)
    check_start(stages, start, is_teacher, teacher.width)
    check_cut(cfg, start)
    evaluation = evaluation_texts(cfg)
    there_is = bool(cfg.text or cfg.pairs or cfg.text_pairs) or teacher.texts is not None
    reads_text = any(stage.data.reads_text(there_is) for stage in stages)
    corpus = read_text_and_pairs(cfg, teacher, evaluation) if reads_text else Corpus([], [], 0)
    shared = Shared(cfg, teacher, start, corpus, TeacherEmbeddings(cfg, corpus, teacher), evaluation)
    feeds = [stage.data.read(shared) for stage in stages]
    if cfg.text_pairs and not any(feed.learns_from_teacher for feed in feeds):
        raise UserError(
            f"--config.text_pairs={cfg.text_pairs}: the student is to answer the teacher's vector of a source for its translation, and "
            f"--config.method={cfg.method} does not learn from a teacher's vectors here; leave the key empty"
        )
    shared, feeds_of_cut = with_cut_vocabulary(shared, feeds, [stage.cfg for stage in stages])
    return Run(cfg, shared, is_teacher, stages, feeds_of_cut)


def configured_teacher(cfg: ConfigDict) -> Teacher:
    """The teacher that a config names. Raises UserError as open_teacher does."""
    return open_teacher(
        cfg.teacher or cfg.start, cfg.max_length, cfg.teacher_dtype, cfg.teacher_pooling, cfg.trust_remote_code
    )


def open_start(cfg: ConfigDict, first: Stage, teacher: Teacher) -> tuple[Encoder, bool]:
    """(the encoder that the student starts as, whether it is the teacher itself)."""
    encoder = None if first.student or (cfg.start and cfg.teacher) else teacher.encoder
    is_teacher = encoder is not None
    if encoder is None and not (first.student or cfg.start):
        raise UserError(
            f"--config.teacher={cfg.teacher} is known by its answers only; name the encoder that the student starts as in --config.start"
        )
    if encoder is None:
        encoder = loading.load(first.student or cfg.start, key="config.student" if first.student else "config.start")
    if cfg.max_length > encoder.max_length:
        log.info(
            "max_length=%d: the start reads %d tokens of a text, and so will the student",
            cfg.max_length,
            encoder.max_length,
        )
    if cfg.max_length:
        encoder = replace(encoder, max_length=min(cfg.max_length, encoder.max_length))
    tell_cut_lengths(cfg, encoder)
    prompts, pooling = encoder.prompts | configured_prompts(cfg), resolve_pooler(cfg.pooling or encoder.pooling)
    # A student counts its prompt's tokens, whatever its start does: an ONNX graph could not tell them from the text's.
    return replace(encoder, prompts=prompts, pooling=pooling, include_prompt=True), is_teacher


def plans(run: Run, workdir: Path | None) -> Iterator[str]:
    """What each stage would take here, for --dry_run; workdir: if it is known. Writes nothing. Raises UserError for an index that cannot be made."""
    for stage, feed, method, data in untrained_stages(run):
        if stage.trains == "student":
            preflight.check_index(run.cfg, indexed_width(run, stage, method), len(run.feeds[-1].index_texts()))
        yield dry_run.describe_stage(stage, feed, method, data, workdir)


def planned_machine(name: str) -> tuple[Machine, Mesh]:
    """A machine by its name, and its devices: before a text is read. Raises UserError for a name that there is not, and where JAX's
    plugin for GPUs is missing."""
    machine = machine_named(name)
    return machine, absent_mesh(machine)


def plans_on(run: Run, machine: Machine, mesh: Mesh) -> Iterator[str]:
    """What each stage's step would take on a machine that need not be there; writes nothing, trains nothing, asks nobody.

    Raises: UserError for a batch that its devices cannot share evenly.
    """
    with sharding.planning(mesh):  # for which texts are packed too
        for stage, _, method, data in untrained_stages(run):
            yield from machine_plan.describe_on(machine, mesh, stage.name, stage.cfg, method, data)


def untrained_stages(run: Run) -> Iterator[tuple[Stage, Feed, Method, Data]]:
    """The stages with their methods and made-up data, each from the start of the one before."""
    student, is_teacher = run.shared.start, run.is_teacher
    for stage, feed in zip(run.stages, run.feeds, strict=True):
        method, data = open_stage(stage, feed, student, is_teacher, made_up=True)
        yield stage, feed, method, data
        if stage.trains == "student":
            student, is_teacher = method.student, False


def train_stages(run: Run, workdir: Path, parts: Collection[str] = (), give_up: GiveUp | None = None) -> Trained:
    """Trains the stages in their folders, each from its newest checkpoint. parts: that are written behind them (completeness.lacking), for
    which there must be room. give_up: see train.loop.train, of the last stage."""
    student, is_teacher = run.shared.start, run.is_teacher
    done: list[dict[str, Any]] = []
    params: Tree = {}
    feed: Feed | None = None
    preflight.check_answers(run.shared, run.feeds)
    for stage, next_feed in zip(run.stages, run.feeds, strict=True):
        folder, feed = workdir / stage.name, next_feed.begin(feed)
        method, data = open_stage(stage, feed, student, is_teacher)
        data = replace(data, origins=origins_of(stage, feed, method))
        begin_folder(run, stage, method, data, folder, parts)
        score = feed.dev_score(stage.cfg, method)
        figures = train(stage.cfg, method, data, folder, score, give_up if stage is run.stages[-1] else None)._asdict()
        params = figures.pop("params")
        give_back_freed_memory()
        feed = feed.after(stage.cfg, method, params, folder)
        if stage.trains == "student":
            student, is_teacher = method.trained(params), False
        sentences = figures["steps"] * stage.cfg.batch_size * data.texts_per_row
        done.append({"name": stage.name, **figures, "sentences": sentences})
    assert feed is not None  # there is no method without a stage
    return Trained(student, params, feed, done)


def open_stage(
    stage: Stage, feed: Feed, student: Encoder, is_teacher: bool, made_up: bool = False
) -> tuple[Method, Data]:
    """A stage's method, bound to the student that it starts from, and its data. made_up: nobody is asked."""
    shared = feed.shared
    if stage.tokenizer:
        student = replace(student, tokenizer=stage.tokenizer(student))
    tokens, data = feed.batches(stage.cfg, student, made_up)
    embeddings = shared.random_embeddings if made_up else shared.embeddings.train
    start = Start(student, is_teacher, shared.teacher.width, tokens, embeddings, feed)
    return stage.build(stage.cfg, start), data


def indexed_width(run: Run, stage: Stage, method: Method) -> int:
    """Of the vectors that the run's index will hold, as far as a stage knows it: its student's, or what a later stage makes of them."""
    later = 0 if stage is run.stages[-1] else run.cfg.get("output_dim", 0)
    return later or method.student.dim


def begin_folder(run: Run, stage: Stage, method: Method, data: Data, folder: Path, parts: Collection[str]) -> None:
    """Checks that a stage goes on as it began, with room for it and the run's parts, and writes its student's files, weights excepted."""
    texts, steps = len(run.feeds[-1].index_texts()), total_steps(stage.cfg, data.batches.steps_per_epoch)
    check_goes_on(data, steps, folder)
    if stage.trains == "student":
        preflight.check_index(run.cfg, indexed_width(run, stage, method), texts)
    preflight.check_room(stage.cfg, method, folder, texts, steps, parts)
    if sharding.is_first_process() and stage.trains == "student":
        place = [each.name for each in run.stages].index(stage.name)  # by which an export tells the last
        with replacing(folder / "student", "student", key="the student's files", legacy=WRITTEN, stage=place) as beside:
            write_files(method.student, beside)
        teacher, share = run.shared.teacher.encoder, ""
        if teacher:
            share = f", {100 * method.student.num_params / teacher.num_params:.0f} % of the {model_beside(run.cfg.teacher)}'s"
        log.info("student: %d parameters%s", method.student.num_params, share)
        if whole := run.shared.whole_vocabulary:
            log.info("student: %s", saved_line(method.student, whole))
    sharding.barrier("stage folder")
