"""A sweep's study: the file in which Optuna keeps the trials, what a trial tells it, and trials that a kill ended."""

from __future__ import annotations

import glob
import hashlib
import math
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from jdistill.core.errors import UserError, lacks_memory
from jdistill.core.left_over import take_away
from jdistill.core.progress import log
from jdistill.sweep.space import Space
from jdistill.train.early_end import GiveUp
from jdistill.train.watch import Diverged

REFUSED = "refused"  # a trial that ended in a UserError, and the attribute that holds its message
DIVERGED = "diverged"  # the attribute that holds what a trial diverged by


def open_study(path: Path, prune: bool) -> optuna.Study:
    """The study that a file holds, with the trials that it has got so far; a new one where there is no file.

    Args:
      path: Optuna's journal.
      prune: whether trials below the median of the others are to end early.

    The folder is held for this process. A last line that a full disk cut short is taken away: what is appended would join it.

    Raises: UserError for a file that is damaged.
    """
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)
    for lock in path.parent.glob(f"{glob.escape(path.name)}.lock*"):  # Optuna's, of a process that was killed
        take_away(lock)
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


def as_begun(study: optuna.Study, space: Space) -> Space:
    """The space in the order in which the study's first trial drew from it, by which its trials are named and draw on; of a new one as it is."""
    first = next((trial.params for trial in study.trials if trial.params.keys() == space.keys()), space)
    return {key: space[key] for key in first}


def run_trial(
    study: optuna.Study,
    trial: optuna.Trial,
    curve: dict[int, float],
    train: Callable[[GiveUp], None],
    by_last: bool = False,
) -> None:
    """Runs a trial to its end and tells the study its dev score, or that it was pruned, diverged or was refused, as where memory does
    not suffice for it.

    Args:
      curve: step -> dev score of the trial before it was killed; empty for a new one. Scores are added to it.
      train: trains; calls its argument with step and dev score of each checkpoint, and stops where that returns True.
      by_last: whether the trial's score is that of its last checkpoint, as where a run exports that one; else of the best.

    Raises: UserError for a trial that ended without a dev score.
    """
    pruned = False
    told: set[int] = set()

    def tell(until: float) -> None:
        for step in sorted(curve.keys() - told):
            if (
                step <= until
            ):  # Optuna prunes by the newest step that it knows, which training may not have come to again
                trial.report(curve[step], step)
                told.add(step)

    def give_up(step: int, score: float, last: bool = False) -> bool:
        nonlocal pruned
        curve[step] = score
        tell(step)
        pruned = not last and trial.should_prune()  # of a trial that ends there anyway the score is had
        return pruned

    try:
        train(give_up)
        tell(math.inf)
    except Diverged as error:
        log.info("%s", error)
        trial.set_user_attr(DIVERGED, str(error))
        study.tell(trial, state=TrialState.PRUNED)
        return
    except Exception as error:
        if not isinstance(error, UserError) and not lacks_memory(error):
            raise
        log.warning("WARNING: the trial was refused: %s", error)
        trial.set_user_attr(REFUSED, str(error))
        study.tell(trial, state=TrialState.FAIL)
        return
    if not curve:
        raise UserError(
            "the trial ended without a dev score, by which a sweep compares: too few texts are held out to have one. Bring more text, "
            "or --config.dev_pairs or --config.dev_retrieval"
        )
    score = curve[max(curve)] if by_last else max(curve.values())
    if not math.isfinite(score):  # which Optuna would take for a failure that is to be tried again, for ever
        trial.set_user_attr(DIVERGED, f"its dev score is {score}")
        study.tell(trial, state=TrialState.PRUNED)
    elif pruned:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, score)
    log.info("%s at a dev score of %.2f", "pruned" if pruned else "done", score)


def repeat_trial(study: optuna.Study, trial: optuna.Trial, same: FrozenTrial) -> None:
    """Ends a trial as an earlier one with the same values did, so that the sampler's count goes on."""
    for name, value in same.user_attrs.items():
        trial.set_user_attr(name, value)
    study.tell(trial, same.value if same.state == TrialState.COMPLETE else None, state=same.state)


def take_up_killed(study: optuna.Study, keys: Collection[str]) -> dict[str, dict[int, float]]:
    """Enqueues the trials that a kill ended.

    keys: that a sweep varies. A kill may come between a trial's beginning and the noting of their values: those it was enqueued with are
    taken, and one that had drawn some only is drawn again, as its number alone decides.

    Returns: a trial's name -> its dev scores by step, from all the times that it was killed.
    """
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        values = trial.system_attrs.get("fixed_params", {}) | trial.params
        waiting = [set_at_first(each) for each in study.get_trials(deepcopy=False, states=(TrialState.WAITING,))]
        if set(keys) <= values.keys() and values not in waiting:
            study.enqueue_trial(values)  # before it is told, or a kill between the two would lose it
        study.tell(trial.number, state=TrialState.FAIL)
    curves: dict[str, dict[int, float]] = {}
    for trial in study.get_trials(states=(TrialState.FAIL,)):
        curves.setdefault(trial_name(trial.params), {}).update(trial.intermediate_values)
    return curves


def enqueue_new(study: optuna.Study, settings: Sequence[dict[str, Any]]) -> None:
    """Enqueues the settings that the study does not have; by Optuna's own comparison seeds of many digits would be alike.

    Those that a kill ended wait again, unless they were of no grid since.
    """
    trials = study.get_trials(deepcopy=False)
    there = [set_at_first(trial) for trial in trials if trial.state != TrialState.FAIL or REFUSED in trial.user_attrs]
    for setting in settings:
        if setting not in there:
            study.enqueue_trial(setting)


def set_at_first(trial: FrozenTrial) -> dict[str, Any]:
    """The values that a trial was enqueued with; of one that was drawn those that it has drawn."""
    values: dict[str, Any] = trial.system_attrs.get("fixed_params", trial.params)
    return values


def take_up_refused(study: optuna.Study, settings: Sequence[dict[str, Any]] | None = None) -> None:
    """Enqueues once more the trials that were refused, behind all that wait: what refused them, such as a full disk, may have been mended.

    settings: of a grid those that it is of now, and none else is tried again.
    """
    waiting = [set_at_first(trial) for trial in study.get_trials(states=(TrialState.WAITING,))]
    gone = [*waiting, *(trial.params for trial in ended_trials(study))]
    for trial in refused_trials(study):
        if trial.params not in gone and (settings is None or trial.params in settings):
            study.enqueue_trial(trial.params)
            gone.append(trial.params)


def refused_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that ended in a UserError, at all calls of the sweep, the newest last."""
    return [
        trial for trial in study.get_trials(deepcopy=False, states=(TrialState.FAIL,)) if REFUSED in trial.user_attrs
    ]


def ended_trials(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that came to an end, pruned and diverged ones too."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def trial_name(params: dict[str, Any]) -> str:
    """A folder's name for the trial of these values, of at most 150 bytes; another for other values."""
    name = ",".join(f"{key}={value}" for key, value in params.items())
    if "/" not in name and len(name.encode()) < 150:
        return name
    head = name.replace("/", "_").encode()[:100].decode(errors="ignore")
    return f"{head}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def trial_rows(study: optuna.Study, settings: Sequence[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The trials as sweep.json holds them, one per setting, best first: params, score (None without one), state and curve; of one that was
    refused, and has not ended since, error: why; earlier, True, of one that is not of a grid's settings any more, behind the others.

    settings: of a grid those that it is of now.
    """
    trials = [*ended_trials(study), *reversed(refused_trials(study))]
    distinct = {repr(sorted(trial.params.items())): trial for trial in reversed(trials)}
    rows: list[dict[str, Any]] = [
        {
            "params": trial.params,
            "score": trial.value if trial.state == TrialState.COMPLETE else None,
            "state": _state_of(trial),
            "curve": {str(step): value for step, value in sorted(trial.intermediate_values.items())},
        }
        | ({"error": trial.user_attrs[REFUSED]} if REFUSED in trial.user_attrs else {})
        | ({"earlier": True} if settings is not None and trial.params not in settings else {})
        for trial in sorted(distinct.values(), key=lambda trial: trial.number)
    ]
    return sorted(
        rows, key=lambda row: ("earlier" in row, -(row["score"] if row["score"] is not None else float("-inf")))
    )


def _state_of(trial: FrozenTrial) -> str:
    return next((state for state in (DIVERGED, REFUSED) if state in trial.user_attrs), trial.state.name.lower())
