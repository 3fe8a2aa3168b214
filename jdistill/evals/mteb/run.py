"""Tasks and benchmarks by name, an encoder on them, and the files of figures that mteb writes and reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
import mteb
from mteb.abstasks import AbsTask

from jdistill.core.errors import UserError, first_line
from jdistill.core.progress import log
from jdistill.data.text.hub import hub_answers
from jdistill.encoder.encoder import Encoder
from jdistill.evals.mteb.adapter import BATCH, MtebEncoder
from jdistill.evals.mteb.local_tasks import LOCAL_PATH, LOCAL_TASKS

RESULTS = "results"  # the folder within a folder of results that mteb writes to


@dataclass(frozen=True)
class TaskGroup:
    """Tasks that one name stands for.

    Args:
      name: of a benchmark, a task, or of local files.
      tasks: mteb's.
      is_local: whether their data are files of the user's own.
    """

    name: str
    tasks: Sequence[AbsTask]
    is_local: bool


def task_groups(names: Sequence[str]) -> list[TaskGroup]:
    """The tasks of names: a benchmark or a task of mteb's, beir:FOLDER, pairs:FILE, labelled:FOLDER or labelled:FOLDER:TASK.

    Raises: UserError for a name that mteb does not have, with one like it; for local files as their readers do; where two names bring
      tasks that are called the same; and where a task needs the hub and it does not answer.
    """
    groups = [_group(name) for name in names]
    tasks: dict[str, str] = {}
    for group in groups:
        for task in group.tasks:
            if (other := tasks.setdefault(task.metadata.name, group.name)) != group.name:
                raise UserError(
                    f"--mteb: {other} and {group.name} both bring {task.metadata.name}; leave one out, or rename it"
                )
    _check_hub([group.name for group in groups if not group.is_local])
    return groups


def check_results_folder(folder: Path, key: str) -> None:
    """Raises UserError for a place that is no folder of mteb's results and cannot become one."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--{key}={folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RESULTS).is_dir():
        raise UserError(f"--{key}={folder} holds files and no {RESULTS}/, where mteb keeps figures; name a new folder")


def evaluate_mteb(model: MtebEncoder, groups: Sequence[TaskGroup], folder: Path) -> dict[str, dict[str, float]]:
    """The main score of each task, as mteb names it; "mean" of a benchmark's tasks under the benchmark's name.

    Figures of a task of mteb's that the folder has of the same Encoder are not made again; those of local files, and of other
    runtimes' models, always are.

    Args:
      model: the encoder behind mteb's protocol.
      groups: of task_groups.
      folder: FOLDER/results/MODEL/REVISION/TASK.json is written by mteb, with model_meta.json beside.

    Raises: UserError where data cannot be had, and for files of figures that are damaged.
    """
    if all(group.is_local for group in groups):
        datasets.disable_progress_bars()  # of work that takes no time; what is downloaded shows its progress
    cache = mteb.ResultCache(cache_path=folder)
    figures: dict[str, dict[str, float]] = {}
    for group in groups:
        scores = {}
        for task in group.tasks:
            if group.is_local:
                _tell_of_other_data(cache.get_task_result_path(task.metadata.name, model.mteb_model_meta), task)
            anew = group.is_local or not isinstance(model.encoder, Encoder)
            scores[task.metadata.name] = _score(model, task, cache, anew)
            figures[task.metadata.name] = {task.metadata.main_score: scores[task.metadata.name]}
        if group.name not in figures and not group.is_local:
            figures[group.name] = {"mean": sum(scores.values()) / len(scores)}
    log.info("written by mteb to %s", cache.get_task_result_path("TASK", model.mteb_model_meta).parent)
    return figures


def _score(model: MtebEncoder, task: AbsTask, cache: mteb.ResultCache, anew: bool) -> float:
    """The main score of a task. anew: whatever figures of it there are."""
    name = task.metadata.name
    log.info("mteb %s: %s, %s", mteb.__version__, name, task.metadata.main_score)
    if not anew:
        _check_figures(cache.get_task_result_path(name, model.mteb_model_meta))
    try:
        result = mteb.evaluate(
            model,
            task,
            cache=cache,
            co2_tracker=False,
            overwrite_strategy="always" if anew else "only-missing",
            encode_kwargs={"batch_size": BATCH, "show_progress_bar": False},
            show_progress_bar=False,
            public_only=False,
        )
    except (OSError, ValueError) as error:  # of datasets and huggingface_hub, which know many kinds of what is missing
        if task.metadata.dataset["path"].startswith(LOCAL_PATH):
            raise
        raise UserError(
            f"--mteb={name}: mteb could not run it ({type(error).__name__}: {first_line(error)[:200]}). Its data are the dataset "
            f"{task.metadata.dataset['path']}; without the hub, name local files: {', '.join(LOCAL_TASKS)}"
        ) from error
    # Of the splits and subsets that are asked: a file of figures may hold those of an earlier command's too.
    return float(result.task_results[0].validate_and_filter_scores(task).get_score())


def _check_figures(path: Path) -> None:
    """Raises UserError for a file of figures that mteb cannot read."""
    try:
        if path.exists():
            mteb.TaskResult.from_disk(path)
    except Exception as error:  # of json, of pydantic, of what is missing in it
        raise UserError(f"{path} is no file of mteb's figures ({first_line(error)[:200]}); remove it") from None


def _tell_of_other_data(path: Path, task: AbsTask) -> None:
    """Warns of figures of other data under a local task's name, which will be written over."""
    try:
        there = mteb.TaskResult.from_disk(path).dataset_revision if path.exists() else task.metadata.revision
    except Exception:  # as _check_figures; figures that cannot be read are none
        return
    if there != task.metadata.revision:
        log.warning("%s: its figures of other data called %s are replaced", path, task.metadata.name)


def _group(name: str) -> TaskGroup:
    kind, colon, source = name.partition(":")
    if colon and kind in LOCAL_TASKS:
        return TaskGroup(name, LOCAL_TASKS[kind](source), is_local=True)
    hints = []
    for tasks_of in (_benchmark_tasks, _named_task):
        try:
            return TaskGroup(name, tasks_of(name), is_local=False)
        except KeyError as error:
            hints.append(str(error.args[0]).rpartition("Did you mean:")[2].strip(" '?"))
    near = ", ".join(hint for hint in hints if "not found" not in hint)
    raise UserError(
        f"--mteb={name}: mteb {mteb.__version__} has no such task or benchmark{f'; near it: {near}' if near else ''}. "
        f"Local files are {', '.join(f'{kind}:PATH' for kind in LOCAL_TASKS)}"
    )


def _benchmark_tasks(name: str) -> list[AbsTask]:
    return list(mteb.get_benchmark(name).tasks)


def _named_task(name: str) -> list[AbsTask]:
    return [mteb.get_task(name)]


def _check_hub(names: Sequence[str]) -> None:
    """Raises UserError where tasks need the hub and it does not answer; mteb alone would retry for minutes."""
    from huggingface_hub import constants

    if names and not constants.HF_HUB_OFFLINE and not hub_answers():
        raise UserError(
            f"--mteb={names[0]}: its data are on the hub, and {constants.ENDPOINT} cannot be reached. HF_HUB_OFFLINE=1 reads copies "
            f"cached before; local files are {', '.join(f'{kind}:PATH' for kind in LOCAL_TASKS)}"
        )
