"""Which student a budget of megabytes and milliseconds buys: the largest of the menu that fits, chosen before a run begins.

Sizes are known by the shapes alone. Times are taken of untrained weights, since speed does not depend on what they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from jdistill.config.budget_keys import BUDGET_FORMS, budget_form
from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.files import flat, look_into
from jdistill.core.progress import log
from jdistill.core.run_folder import is_config
from jdistill.encoder.encoder import Encoder
from jdistill.export.form_size import expected_bytes
from jdistill.export.targets import target_of
from jdistill.feeds.stage import check_start
from jdistill.models.precision import settled_dtype
from jdistill.run.stages import configured_teacher, open_start, stages_of
from jdistill.run.student_candidates import Candidate, menu_candidates, timed_ms, timing_texts
from jdistill.run.workdir import has_begun
from jdistill.students.menu import SHAPE_KEYS, shape_in_words
from jdistill.students.vocabulary import vocabulary_asked

# What decides the choice, beside the budget: with one of these changed, a run that has not begun chooses anew.
CHOICE_KEYS = (
    "teacher", "start", "text", "pairs", "text_pairs", "text_column", "max_length", "pooling", "student.vocabulary",
)  # fmt: skip


def settle_student(cfg: ConfigDict, workdir: Path | None) -> str:
    """Puts the student that cfg.budget buys into cfg.student: chosen now or, of a run that is resumed, as it was. All processes of a run
    call it together, and the first one chooses.

    Args:
      workdir: of the run, whose config.json keeps the choice; None: it has none.

    Returns: what was chosen, in a sentence; "" for a config without a budget.

    Raises: UserError for a budget that nothing meets, with the nearest that can be had.
    """
    if "budget" not in cfg:
        return ""
    keys, said = dict.fromkeys(SHAPE_KEYS, 0), ""
    settled = cfg.copy_and_resolve_references()
    settled.teacher_dtype = settled_dtype(
        cfg.teacher_dtype
    )  # all processes ask together; the first alone would wait for the others

    def choose() -> None:
        nonlocal keys, said
        before = chosen_before(cfg, workdir)
        _check_open(cfg, before or keys)
        keys, said = (before, "as the run was given") if before else choose_student(settled)

    sharding.by_first_process(choose, "the choice of a student for the budget")
    chosen = sharding.broadcast(np.array([keys[key] for key in SHAPE_KEYS]))
    cfg.student.update(dict(zip(SHAPE_KEYS, map(int, chosen), strict=True)))
    return f"budget: {shape_in_words(cfg.student)}; {said}"


def chosen_before(cfg: ConfigDict, workdir: Path | None) -> dict[str, int] | None:
    """SHAPE_KEYS of the run in a folder; None where it has none, or has not begun and was to choose by other keys."""
    path = workdir / "config.json" if workdir else None
    if workdir is None or path is None or not path.is_file():
        return None
    theirs: Any = look_into(path)
    if not is_config(theirs) or "budget" not in theirs:
        return None
    there, now = flat(theirs), flat(json.loads(cfg.to_json()))
    keys = {key: value for key in SHAPE_KEYS if isinstance(value := there.get(f"student.{key}"), int)}
    same = all(there.get(key) == now[key] for key in now if key in CHOICE_KEYS or key.startswith("budget."))
    return keys if len(keys) == len(SHAPE_KEYS) and (same or has_begun(workdir)) else None


def choose_student(cfg: ConfigDict) -> tuple[dict[str, int], str]:
    """SHAPE_KEYS of the largest student of the menu that meets the budget, and what is to be said of it. Raises UserError as settle_student."""
    budget = cfg.budget
    form = budget_form(cfg)
    target_of(form, key="the form of --config.budget")
    teacher, stages = configured_teacher(cfg), stages_of(cfg)
    start, is_teacher = open_start(cfg, stages[0], teacher)
    check_start(stages, start, is_teacher, teacher.width)
    if budget.dim not in (0, teacher.width):
        raise UserError(
            f"--config.budget.dim={budget.dim}: a student by SimTDE has vectors as wide as its teacher's, {teacher.width}; set "
            f"--config.budget.dim=0, or train one of that width by --config configs/ibkd.py with --config.output_dim={budget.dim}"
        )
    menu = menu_candidates(cfg, start, form)
    light = [candidate for candidate in menu if not budget.mb or candidate.mb <= budget.mb]
    texts = timing_texts(cfg, teacher) if budget.ms else []
    if not light:
        raise UserError(_too_heavy(cfg, start, min(menu, key=lambda candidate: candidate.mb), texts))
    if not budget.ms:
        return light[0].keys, _said(light[0], None)
    taken: list[tuple[float, Candidate]] = []
    for candidate in light:
        ms = timed_ms(start, candidate.config, form, texts)
        log.info("budget: %s: %.1f MB, %.2f ms a text", candidate, candidate.mb, ms)
        taken.append((ms, candidate))
        if ms <= budget.ms:
            return candidate.keys, _said(candidate, ms)
    ms, nearest = min(taken, key=lambda item: item[0])
    of_size = f" within {budget.mb:g} MB" if budget.mb else ""
    raise UserError(
        f"--config.budget.ms={budget.ms:g}: none of the {len(taken)} students of the menu{of_size} is so fast in {_runtime(cfg)}, one text "
        f"at a time on this machine; the nearest has {nearest}: it needs {_up(ms, 2)} ms and {_up(nearest.mb, 1)} MB"
    )


def _check_open(cfg: ConfigDict, chosen: Mapping[str, int]) -> None:
    """Raises UserError for a shape that was set by hand. chosen: SHAPE_KEYS that are the budget's own."""
    if fixed := [key for key in SHAPE_KEYS if cfg.student[key] not in (0, chosen[key])]:
        raise UserError(
            f"--config.student.{fixed[0]}={cfg.student[fixed[0]]}: the budget chooses it; leave it 0, or take configs/simtde.py, which has no budget"
        )


def _too_heavy(cfg: ConfigDict, start: Encoder, nearest: Candidate, texts: Sequence[str]) -> str:
    """What a budget of megabytes below the menu's lightest is told."""
    budget, takes = cfg.budget, ""
    if texts:
        ms = timed_ms(start, nearest.config, budget_form(cfg), texts)
        takes = f" and {_up(ms, 2)} ms a text"
    smaller = []
    if budget.precision == "float32":
        mb = expected_bytes(BUDGET_FORMS[budget.runtime, "int8"], nearest.config) / 1e6
        smaller.append(f"with --config.budget.precision=int8 it needs {_up(mb, 1)} MB")
    if not vocabulary_asked(cfg):
        smaller.append("a vocabulary cut to so many pieces, as --config.student.vocabulary=8000, makes it smaller")
    return (
        f"--config.budget.mb={budget.mb:g}: no student of the menu is so small in {_runtime(cfg)}; the nearest has {nearest}: it needs "
        f"{_up(nearest.mb, 1)} MB{takes}" + "".join(f"; {way}" for way in smaller)
    )


def _up(value: float, decimals: int) -> str:
    """A need in so many decimals, rounded up: a budget of what is said is one that it meets."""
    return f"{math.ceil(value * 10**decimals) / 10**decimals:.{decimals}f}"


def _runtime(cfg: ConfigDict) -> str:
    return f"{cfg.budget.runtime} and {cfg.budget.precision}"


def _said(candidate: Candidate, ms: float | None) -> str:
    """Size, time and promise of what was chosen."""
    speed = "" if ms is None else f", {ms:.2f} ms a text"
    promise = (
        "its quality was not measured, and nothing is promised of it"
        if candidate.retention is None
        else f"the menu promises {candidate.retention:.1f} % of its teacher's nDCG@10 in float32, by one collection, "
        "if configs/budget.py:search trains it"
    )
    return f"{candidate.num_params:,} parameters, {candidate.mb:.1f} MB{speed}; {promise}"
