"""A sweep: its trials by Optuna or on a grid, their runs, and what came out."""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from absl import app, flags
from ml_collections import ConfigDict

from jdistill.config.flags import CONFIG, WORKDIR, parse
from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import (
    UserError,
    exits_cleanly,
    keep_crashes_in,
    leave,
)
from jdistill.core.files import naming, write_json
from jdistill.core.progress import log, setup_logging
from jdistill.report.sweep import write_sweep_page
from jdistill.run.stages import prepare, train_stages
from jdistill.run.workdir import clear_temporary, only_run, settle_config
from jdistill.sweep.space import Space, check_space, parse_space
from jdistill.train.signals import Interrupted
from jdistill.train.watch import Diverged

try:
    import optuna
    from optuna.distributions import CategoricalDistribution
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise SystemExit('error: a sweep needs optuna: pip install "jdistill[sweep]"') from error

GRID = flags.DEFINE_multi_string(
    "grid", [], "KEY=A,B,C or, for random and tpe, KEY=LOW..HIGH; again for each key that varies"
)
SAMPLER = flags.DEFINE_enum("sampler", "grid", ["grid", "random", "tpe"], "every combination, or drawn by Optuna")
TRIALS = flags.DEFINE_integer("trials", 20, "how many, of the samplers random and tpe")
PRUNE = flags.DEFINE_bool("prune", False, "end a trial whose dev score is below the median of the others at its step")
SAMPLER_SEED = flags.DEFINE_integer("sampler_seed", 0, "of the samplers random and tpe")

# Trains a trial in a folder; told step and dev score of each checkpoint, the callback may end it.
Trainer = Callable[[ConfigDict, Path, Callable[[int, float], bool]], None]


def train_trial(cfg: ConfigDict, folder: Path, give_up: Callable[[int, float], bool]) -> None:
    """Trains a trial, without export and evaluation; its checkpoints are then deleted."""
    train_stages(prepare(cfg), folder, give_up)
    for checkpoints in folder.glob("*/checkpoints"):
        shutil.rmtree(checkpoints)


def sweep(
    cfg: ConfigDict,
    workdir: Path,
    space: Space,
    sampler: str = "grid",
    trials: int = 20,
    prune: bool = False,
    seed: int = 0,
    trainer: Trainer = train_trial,
) -> list[dict[str, Any]]:
    """Runs what is left of a sweep. Returns its ended trials, best first, as sweep.json holds them: params; score, None where
    it was pruned or diverged; state; curve, the dev score by step.

    Raises UserError for a value that the method refuses (before the first trial), and a workdir of another sweep.
    """
    check_space(cfg, space)
    with naming(workdir), only_run(workdir, "a sweep"):
        return _sweep(cfg, workdir, space, sampler, trials, prune, seed, trainer)


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
    settle_config(_identity(cfg, space, sampler), workdir)
    clear_temporary(workdir)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = _open_study(workdir, prune)
    before = _take_up_killed(study)
    if sampler == "grid":
        combinations = list(
            itertools.product(*(of.choices for of in space.values() if isinstance(of, CategoricalDistribution)))
        )
        trials = len(combinations)
        for combination in combinations:
            study.enqueue_trial(dict(zip(space, combination, strict=True)), skip_if_exists=True)
    while (ended := len(_ended(study))) < trials:
        # By its number alone, so that a sweep that was killed draws on as one that was not.
        own_seed = 1000 * seed + ended
        study.sampler = (
            optuna.samplers.TPESampler(seed=own_seed)
            if sampler == "tpe"
            else optuna.samplers.RandomSampler(seed=own_seed)
        )
        trial = study.ask(space)
        name = _name(trial.params)
        log.info("trial %d of %d: %s", ended + 1, trials, name)
        if (same := next((of for of in _ended(study) if of.params == trial.params), None)) is not None:
            log.info("drawn before, and not run again")
            _repeat(study, trial, same)
            continue
        mine = cfg.copy_and_resolve_references()
        mine.update_from_flattened_dict(trial.params)
        _run(study, trial, before.pop(name, {}), partial(trainer, mine, workdir / "trials" / name))
        _write(workdir, study)
    return _write(workdir, study)


def _open_study(workdir: Path, prune: bool) -> optuna.Study:
    """The study of the folder's trials, as far as they have come."""
    path = workdir / "study.log"
    try:
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="sweep",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(n_startup_trials=4) if prune else optuna.pruners.NopPruner(),
        )
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise UserError(
            f"{path} is damaged ({error}); bring it back, or delete it to run the sweep's trials again"
        ) from None


def _run(
    study: optuna.Study,
    trial: optuna.Trial,
    curve: dict[int, float],
    train: Callable[[Callable[[int, float], bool]], None],
) -> None:
    """One trial to its end, which the study is told: its best dev score. curve: its scores by step before it was killed."""
    pruned = False
    for step, score in curve.items():
        trial.report(score, step)

    def give_up(step: int, score: float) -> bool:
        nonlocal pruned
        if step not in curve:
            trial.report(score, step)
        curve[step] = score
        pruned = trial.should_prune()
        return pruned

    try:
        train(give_up)
    except Diverged as error:
        log.info("%s", error)
        trial.set_user_attr("diverged", str(error))
        study.tell(trial, state=TrialState.PRUNED)
        return
    best = max(curve.values())
    if pruned:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, best)
    log.info("%s at a dev score of %.2f", "pruned" if pruned else "done", best)


def _repeat(study: optuna.Study, trial: optuna.Trial, same: FrozenTrial) -> None:
    """Ends a trial as the one with the same values did, so that the sampler's count goes on."""
    for name, value in same.user_attrs.items():
        trial.set_user_attr(name, value)
    if same.state == TrialState.COMPLETE:
        study.tell(trial, same.value)
    else:
        study.tell(trial, state=TrialState.PRUNED)


def _take_up_killed(study: optuna.Study) -> dict[str, dict[int, float]]:
    """Asks again for the trials that a kill ended: name -> their dev scores by step, of every kill so far."""
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params)
    found: dict[str, dict[int, float]] = {}
    for trial in study.get_trials(states=(TrialState.FAIL,)):
        found.setdefault(_name(trial.params), {}).update(trial.intermediate_values)
    return found


def _identity(cfg: ConfigDict, space: Space, sampler: str) -> ConfigDict:
    """What a sweep's folder belongs to: the config, with what each varied key is drawn from in the place of its value."""
    found = ConfigDict(cfg.to_dict(), type_safe=False)
    found.update_from_flattened_dict({key: str(of) for key, of in space.items()})
    found.sampler = sampler
    return found


def _ended(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _name(params: dict[str, Any]) -> str:
    """A folder's name for the trial of these values."""
    name = ",".join(f"{key}={value}" for key, value in params.items()).replace("/", "_")
    return name if len(name) < 150 else f"{name[:100]}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def _write(workdir: Path, study: optuna.Study) -> list[dict[str, Any]]:
    """sweep.json and the page, from the trials that have ended."""
    distinct = {repr(sorted(trial.params.items())): trial for trial in reversed(_ended(study))}
    rows: list[dict[str, Any]] = [
        {
            "params": trial.params,
            "score": trial.value if trial.state == TrialState.COMPLETE else None,
            "state": "diverged" if "diverged" in trial.user_attrs else trial.state.name.lower(),
            "curve": {str(step): value for step, value in sorted(trial.intermediate_values.items())},
        }
        for trial in sorted(distinct.values(), key=lambda trial: trial.number)
    ]
    rows.sort(key=lambda row: -(row["score"] if row["score"] is not None else float("-inf")))
    write_json(workdir / "sweep.json", rows)
    write_sweep_page(workdir, rows)
    return rows


@exits_cleanly
def command(_: list[str]) -> int:
    keep_compiled_programs()
    setup_logging()
    if not WORKDIR.value:
        raise UserError("--workdir is missing: the folder for this sweep's trials and results")
    space = parse_space(GRID.value, CONFIG.value, SAMPLER.value)
    workdir = Path(WORKDIR.value)
    try:
        rows = sweep(CONFIG.value, workdir, space, SAMPLER.value, TRIALS.value, PRUNE.value, SAMPLER_SEED.value)
    except Interrupted as stop:
        log.info("stopped by %s; the same command goes on where it stopped", stop.name)
        return 0
    if rows and rows[0]["score"] is not None:
        best = " ".join(f"--config.{key}={value}" for key, value in rows[0]["params"].items())
        log.info("best: dev score %.2f by %s", rows[0]["score"], best)
    log.info("see %s", workdir / "sweep.html")
    return 0


def cli() -> None:
    try:
        app.run(command, flags_parser=parse)
    except SystemExit as end:
        leave(end.code)
