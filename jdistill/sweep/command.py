"""The command of a sweep: draws its trials by Optuna or from a grid, runs them, and writes what came out."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from absl import flags
from ml_collections import ConfigDict
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from jdistill.config.flags import CONFIG, WORKDIR
from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError, exits_cleanly, keep_crashes_in
from jdistill.core.files import TEMPORARY, flat, naming, write_json
from jdistill.core.left_over import take_away
from jdistill.core.progress import log, setup_logging
from jdistill.core.run_folder import TRIALS_FOLDER
from jdistill.core.stored_checkpoints import ENDED
from jdistill.report.sweep import over_seeds, seeds_in_words, write_sweep_page
from jdistill.report.sweep_charts import setting
from jdistill.run.remote_workdir import mirrored_run
from jdistill.run.workdir import (
    BEFORE,
    DTYPE_KEYS,
    clear_temporary,
    exported_checkpoint,
    has_begun,
    only_run,
    settle_dtypes,
)
from jdistill.sweep.regrid import settle_grid, with_values
from jdistill.sweep.space import Space, check_space, parse_space, scored_by_keys, settings_of
from jdistill.sweep.trial_data import DATA, train_trial
from jdistill.sweep.trials import (
    DIVERGED,
    REFUSED,
    as_begun,
    ended_trials,
    enqueue_new,
    open_study,
    refused_trials,
    repeat_trial,
    run_trial,
    take_up_killed,
    take_up_refused,
    trial_name,
    trial_rows,
)
from jdistill.train.checkpoint import LAST_CHECKPOINT
from jdistill.train.early_end import GiveUp
from jdistill.train.signals import Interrupted

# A grid's trials are enqueued, so that its sampler draws nothing.
MOST_SEED = 4_000_000  # a thousandth of what a sampler takes: each trial has a seed of its own
SAMPLERS = {"grid": RandomSampler, "random": RandomSampler, "tpe": TPESampler}

GRID = flags.DEFINE_multi_string(
    "grid", [], 'KEY=A,B,C, KEY=["A, B", "C"] or, for random and tpe, KEY=LOW..HIGH; again for each key that varies'
)
SAMPLER = flags.DEFINE_enum("sampler", "grid", list(SAMPLERS), "every combination, or drawn by Optuna")
TRIALS = flags.DEFINE_integer("trials", 20, "how many, of the samplers random and tpe")
PRUNE = flags.DEFINE_bool("prune", False, "end a trial whose dev score is below the median of the others at its step")
SAMPLER_SEED = flags.DEFINE_integer(
    "sampler_seed", 0, "of the samplers random and tpe", lower_bound=0, upper_bound=MOST_SEED
)

# Trains a trial in a folder; told step and dev score of each checkpoint, the callback may end it.
Trainer = Callable[[ConfigDict, Path, GiveUp], None]


def clear_ended(study: optuna.Study, trials: Path) -> None:
    """Deletes the checkpoints of the trials that the study knows to have ended, all of a stage's or, where that is refused, none. Those of
    one that diverged stay.

    trials: the folder of their folders.
    """
    for trial in ended_trials(study):
        if DIVERGED in trial.user_attrs:
            continue
        for checkpoints in (trials / trial_name(trial.params)).glob("*/checkpoints"):
            checkpoints.with_name(checkpoints.name + ENDED).touch()
            going = Path(tempfile.mkdtemp(dir=checkpoints.parent, prefix=TEMPORARY))
            os.rename(checkpoints, going / checkpoints.name)  # a part of them would pass for damaged ones
            take_away(going)


def sweep(
    cfg: ConfigDict,
    workdir: str | Path,
    space: Space,
    sampler: str = "grid",
    trials: int = 20,
    prune: bool = False,
    seed: int = 0,
    trainer: Trainer = train_trial,
) -> list[dict[str, Any]]:
    """Runs what is left of a sweep. A trial that ends in a UserError, as of a start that is too small for its values, is left out: the others
    go on, and the next call tries it again.

    Returns: its trials, best first, as sweep.json holds them: params; score, None where it was pruned, diverged or was refused; state;
      curve, the dev score by step; of one that was refused error, the message.

    Raises: UserError for a value that the method refuses (before the first trial), trials that end without a dev score, and a workdir of
      another sweep.
    """
    check_space(cfg, space)
    with mirrored_run(workdir, "a sweep") as folder, naming(folder), only_run(folder, "a sweep"):
        return _sweep(cfg, folder, space, sampler, trials, prune, seed, trainer)


def _sweep(
    cfg: ConfigDict,
    workdir: Path,
    space: Space,
    sampler: str,
    trials: int,
    prune: bool,
    seed: int,
    trainer: Trainer,
) -> list[dict[str, Any]]:
    """As sweep, of a folder that this process holds."""
    keep_crashes_in(workdir)
    identity = _identity(cfg, space, sampler)
    _settle(identity, workdir, space.keys() - scored_by_keys(cfg))
    cfg, settled = cfg.copy_and_resolve_references(), flat(identity.to_dict())
    # One type and export for all trials, wherever they go on, and of a sweep that is older than a key what was done then.
    shared = {*DTYPE_KEYS, *BEFORE, "checkpoint"} - space.keys()
    shared -= {"checkpoint"} if {"dev_retrieval", "patience"} & space.keys() else set()
    cfg.update_from_flattened_dict({key: settled[key] for key in flat(cfg.to_dict()).keys() & shared})
    clear_temporary(workdir)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = open_study(workdir / "study.log", prune)
    space = as_begun(study, space)
    before = take_up_killed(study, space)
    earlier = {trial.number for trial in refused_trials(study)}
    clear_ended(study, workdir / TRIALS_FOLDER)  # a kill may have come before it
    settings = None
    if sampler == "grid":
        settings = settings_of(space)
        study, space = with_values(study, workdir / "study.log", space, settings, prune)
        trials = len(settings)
        enqueue_new(study, settings)
    take_up_refused(study, settings)

    def gone() -> list[FrozenTrial]:
        return ended_trials(study) + [trial for trial in refused_trials(study) if trial.number not in earlier]

    def count_of() -> int:
        there = [trial.params for trial in gone()]
        return len(there) if settings is None else sum(setting in there for setting in settings)

    while (count := count_of()) < trials:
        # By its number alone, so that a sweep that was killed draws on as one that was not.
        study.sampler = SAMPLERS[sampler](seed=1000 * seed + count)
        trial = study.ask(space)
        name = trial_name(trial.params)
        log.info("trial %d of %d: %s", count + 1, trials, name)
        if (same := next((other for other in gone() if other.params == trial.params), None)) is not None:
            log.info("drawn before, and not run again")
            repeat_trial(study, trial, same)
            continue
        own_cfg = cfg.copy_and_resolve_references()
        own_cfg.update_from_flattened_dict(trial.params)
        settle_dtypes(own_cfg)  # of those that the sweep varies
        own_cfg.checkpoint = exported_checkpoint(own_cfg)
        by_last = own_cfg.checkpoint == LAST_CHECKPOINT
        run_trial(
            study, trial, before.pop(name, {}), partial(trainer, own_cfg, workdir / TRIALS_FOLDER / name), by_last
        )
        clear_ended(study, workdir / TRIALS_FOLDER)
        _write(workdir, study, settings)
    return _write(workdir, study, settings)


def _settle(identity: ConfigDict, workdir: Path, keys: Collection[str]) -> None:
    """As settle_grid. Where nothing has begun and another config is taken, what was noted of the trials of the old one goes."""
    path = workdir / "config.json"
    before = path.read_bytes() if path.is_file() else None
    settle_grid(identity, workdir, keys)
    if before is not None and path.read_bytes() != before and not has_begun(workdir):
        for name in ("study.log", DATA):
            (workdir / name).unlink(missing_ok=True)


def _identity(cfg: ConfigDict, space: Space, sampler: str) -> ConfigDict:
    """What a sweep's folder belongs to: the config, with what each varied key is drawn from in the place of its value."""
    identity = ConfigDict(cfg.to_dict(), type_safe=False)
    identity.update_from_flattened_dict({key: str(of) for key, of in space.items()})
    identity.sampler = sampler
    return identity


def _write(workdir: Path, study: optuna.Study, settings: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """sweep.json and the page, from the trials that have ended. settings: of a grid those that it is of now."""
    rows = trial_rows(study, settings)
    write_json(workdir / "sweep.json", rows)
    there = [row["params"] for row in rows]
    write_sweep_page(workdir, rows, [setting for setting in settings or () if setting not in there])
    return rows


def best_line(rows: list[dict[str, Any]]) -> str:
    """The setting of the best mean over its seeds, as the page has it, for the log; empty where no trial has a score. rows: of sweep.json."""
    groups = over_seeds(rows)
    if not groups:
        return ""
    best = groups[0]
    mean = "mean of " if best["count"] > 1 else ""
    seeds = f" ({mean}{seeds_in_words(best)} seeds)" if best["tried"] > 1 else ""
    params = best["params"] | ({} if best["seed"] is None else {"seed": best["seed"]})
    keys = "".join(f" {shlex.quote(f'--config.{key}={value}')}" for key, value in params.items())
    return f"best: dev score {best['mean']:.2f}{seeds}" + (f" by{keys}" if keys else "")


@exits_cleanly(resumes=True)
def sweep_command(_: list[str]) -> int:
    """The command `python -m jdistill.sweep`, by its flags; returns its exit status."""
    keep_compiled_programs()
    setup_logging()
    if not WORKDIR.value:
        raise UserError("--workdir is missing: the folder for this sweep's trials and results")
    if TRIALS.value < 1:
        raise UserError(f"--trials={TRIALS.value} must be at least 1")
    space = parse_space(GRID.value, CONFIG.value, SAMPLER.value)
    try:
        workdir = os.path.expanduser(WORKDIR.value)
        rows = sweep(CONFIG.value, workdir, space, SAMPLER.value, TRIALS.value, PRUNE.value, SAMPLER_SEED.value)
    except Interrupted as stop:
        log.info("stopped by %s; the same command goes on where it stopped", stop.name)
        return 0
    if best := best_line(rows):
        log.info(best)
    log.info("see %s/sweep.html", WORKDIR.value.rstrip("/"))
    if refused := [row for row in rows if row["state"] == REFUSED]:
        raise UserError(
            f"{len(refused)} of {len(rows)} trials were refused, and the same command tries them again; {setting(refused[0]['params'])}: "
            f"{refused[0]['error']}"
        )
    return 0
