"""--dry_run: what a run would take, from its config and a few measured steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.progress import clock
from jdistill.evals.speed import per_second
from jdistill.feeds.feed import Feed
from jdistill.feeds.stage import Stage
from jdistill.feeds.tokens import cache_folder
from jdistill.report.beside import model_beside
from jdistill.run.preflight import checkpoint_bytes, checkpoints_kept, free_bytes
from jdistill.students.vocabulary import saved_line
from jdistill.teachers.embeddings import Teacher
from jdistill.train.dataset import Data
from jdistill.train.loop import total_steps
from jdistill.train.method import Method
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import (
    configured_step,
    init_state,
    jit_step,
    place_frozen,
)

TIMED_STEPS = 3  # of each of the two commonest widths
TIMED_TEXTS = 256  # that a teacher answers


def describe_stage(stage: Stage, feed: Feed, method: Method, data: Data, workdir: Path | None) -> str:
    """A stage's plan as lines of text. Compiles and runs a few steps; writes nothing. workdir: of the run; None: not known yet."""
    teacher, corpus, other = feed.shared.teacher, feed.shared.corpus, model_beside(feed.shared.cfg.teacher)
    cfg, batches = stage.cfg, data.batches
    steps = total_steps(cfg, batches.steps_per_epoch)
    per_token, memory = _measure(cfg, method, data)
    mean_tokens = batches.of_epoch.mean(batches.real_tokens) if batches.of_epoch else float(batches.real_tokens.mean())
    step_tokens = mean_tokens * cfg.batch_size / (1.0 - batches.padding)
    lacking = feed.shared.embeddings.lacking
    missing = lacking(held_out=True)
    missing += min(lacking(held_out=False), data.asked) if data.asked else 0
    checkpoints = checkpoints_kept(cfg, steps) * checkpoint_bytes(cfg, method)
    answer_bytes = missing * (4 * teacher.width + 16)
    of_each = " for each file" if batches.groups is not None else ""
    lines = [
        ("stage", f"{stage.name}, of method {cfg.method}"),
        ("devices", sharding.describe_devices()),
        (
            "student",
            f"{method.student.num_params:,} parameters"
            + (
                f", {100 * method.student.num_params / teacher.encoder.num_params:.0f} % of the {other}'s"
                if teacher.encoder
                else ""
            )
            + (f", {saved_line(method.student, whole)}" if (whole := feed.shared.whole_vocabulary) else ""),
        ),
        (
            "text",
            f"{len(data):,} training {data.unit}, {len(corpus.held_out):,} texts held out, {corpus.removed:,} removed as evaluation text, "
            f"{mean_tokens:.1f} tokens each, padding {100 * batches.padding:.1f} %",
        ),
        ("widths", f"{', '.join(map(str, batches.widths))} tokens a row, each compiled once{of_each}"),
        ("steps", f"{steps:,} of {cfg.batch_size} {data.unit}, {steps / batches.steps_per_epoch:.2f} epochs"),
        ("memory", f"{memory / 2**20:,.0f} MiB a device for the step, parameters and optimiser included"),
        (
            "disk",
            f"{answer_bytes / 2**20:,.0f} MiB of the {other}'s answers, where {free_bytes(cache_folder(cfg)) / 2**30:,.0f} GiB are free; "
            f"{checkpoints / 2**20:,.0f} MiB of checkpoints"
            + (f", where {free_bytes(workdir) / 2**30:,.0f} GiB are free" if workdir else ""),
        ),
        feed.plan(cfg) or _of_teacher(teacher, other, corpus.asked_texts, missing),
        (
            "training",
            f"about {clock(steps * step_tokens * per_token)} at {cfg.batch_size / (step_tokens * per_token):,.0f} {data.unit}/s",
        ),
    ]
    return "\n".join(f"{name:<9} {value}" for name, value in lines)


def _measure(cfg: ConfigDict, method: Method, data: Data) -> tuple[float, int]:
    """(seconds a token of a batch, bytes a device) of the real step, from the two commonest widths after compiling."""
    mesh = sharding.global_mesh()
    optimizer = make_optimizer(cfg, 1000)
    state = init_state(method, optimizer, mesh, cfg.shard_params)
    step: Any = jit_step(configured_step(cfg, method, optimizer, mesh), mesh, state)
    frozen = place_frozen(cfg, method, mesh)
    seconds, tokens, memory = 0.0, 0, 0
    for shape in data.batches.shapes_used()[:2]:
        number = data.step_with(shape)
        batch = sharding.shard_rows(data.batch(number), mesh)
        usage = step.lower(state, frozen, batch).compile().memory_analysis()
        memory = max(
            memory,
            usage.argument_size_in_bytes
            + usage.temp_size_in_bytes
            + usage.output_size_in_bytes
            - usage.alias_size_in_bytes,
        )
        state, _ = jax.block_until_ready(step(state, frozen, batch))
        began = time.perf_counter()
        for _ in range(TIMED_STEPS):
            state, _ = step(state, frozen, batch)
        jax.block_until_ready(state)
        seconds += time.perf_counter() - began
        tokens += TIMED_STEPS * data.batches.capacity(data.batches.at(number)[0])
    return seconds / tokens, memory


def _of_teacher(teacher: Teacher, name: str, texts: Sequence[str], missing: int) -> tuple[str, str]:
    """What it is yet to answer; name: of the line, as report.beside has it."""
    about = ""
    if missing and teacher.encoder is not None:
        # From all sources alike, which stand one behind the other.
        some = [texts[i] for i in np.unique(np.linspace(0, len(texts) - 1, TIMED_TEXTS).astype(int)).tolist()]
        about = f", about {clock(missing / per_second(lambda: teacher.answer(some), len(some)))}"
    return name, f"{missing:,} texts to answer{about}"
