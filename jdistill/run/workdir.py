"""A run's folder: whether it is one, which config it belongs to, and that one run at a time works in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.errors import CRASH_FILE, UserError
from jdistill.core.files import (
    TEMPORARY,
    files_in,
    flat,
    look_into,
    some_of,
    write_json,
)
from jdistill.core.left_over import clear_left_over, take_away
from jdistill.core.locks import only_one
from jdistill.core.progress import log
from jdistill.core.run_folder import is_config
from jdistill.core.stored_checkpoints import UNFINISHED
from jdistill.models.precision import AUTO, settled_dtype
from jdistill.train.checkpoint import BEST_CHECKPOINT, LAST_CHECKPOINT

# Keys that change neither the student's weights nor on which text they were trained. OF_RESULTS: of them those that a finished run's figures,
# index or graph were made by; OF_THE_CALL: those that nothing which stays was made by.
OF_RESULTS = (
    "onnx", "index", "index_effort", "index_texts", "index_by", "latency_texts", "evaluate_teacher", "rescore", "test_pairs", "threshold_pairs",
)  # fmt: skip
OF_THE_CALL = {"cache_dir", "log_every", "keep_last", "checkpoint_minutes", "prefetch", "answers_ahead"}
MAY_CHANGE = {*OF_THE_CALL, *OF_RESULTS}
# Dotted keys that were not always there, and what runs did before: a folder that lacks one goes on as it began, but for OF_THE_CALL.
BEFORE = {
    "packed": False,
    "finetune.packed": False,
    "prefetch": 2,
    "answers_ahead": 0,
    "shard_params": False,
    "steps_per_call": 1,
    "average": 0.0,
    "optimizer": "adamw",
    "dev_retrieval": "",
    "loss.align": 0.0,
    "loss.scores": "",
    "loss.scores_weight": 1.0,
    "loss.scores_temperature": 1.0,
    "loss.in_batch": 1.0,
    "student.vocabulary": "",
    "student.intermediate_size": 0,
    "student.attention": "causal",
    "attention": "plain",
    "trust_remote_code": "",
    "text_role": "",
    "pairs": "",
    "index_by": "student",
    "text_pairs": "",
    "checkpoint": "best",
    "tune.prompts": "drawn",
    "topics": 0,
    "iem_cosine": 0.0,
    "queries_without_positive": False,
    "unlabelled_symmetric": "",
    "unlabelled_asymmetric": "",
    "unlabelled_queries": 0,
    "loss_scaling": True,
    "loss.vectors": 0.0,
    "loss.listed": 0.0,
    "patience": 0,
    "tune.patience": 0,
    "checkpoint_minutes": 0.0,
}
DTYPE_KEYS = ("dtype", "teacher_dtype")  # that may be "auto", also in the block of a stage


def check_may_be_run(workdir: Path) -> None:
    """Refuses what a new run may not take for its folder: a file, or a folder that holds anything but a run."""
    if workdir.exists() and not workdir.is_dir():
        raise UserError(f"--workdir={workdir} is a file; name a folder")
    parent = next((place for place in workdir.absolute().parents if place.exists()), Path("/"))
    if not parent.is_dir():
        raise UserError(f"--workdir={workdir}: {parent} is a file; name a folder")
    if not workdir.is_dir() or (workdir / "config.json").is_file():
        return
    folders = {path.name for path in workdir.iterdir() if not _temporary(path)}
    if there := sorted(set(files_in(workdir)) - {CRASH_FILE}) or sorted(folders - {CRASH_FILE}):
        raise UserError(
            f"--workdir={workdir} is not empty and holds no run (it holds {some_of(there)}); choose a new or an empty folder"
        )


@contextmanager
def only_run(workdir: Path, what: str = "a run") -> Iterator[None]:
    """Makes the folder and holds it for this run, of all its processes; another is refused and told who works there."""
    refused: UserError | None = None
    with ExitStack() as stack:
        if sharding.is_first_process():
            try:
                check_may_be_run(workdir)
                workdir.mkdir(parents=True, exist_ok=True)
                stack.enter_context(only_one(workdir / f"{TEMPORARY}lock", workdir, what))
            except UserError as error:
                refused = error
        if sharding.any_process(refused is not None):
            raise refused or UserError(f"{workdir}: the first process was refused, see its message")
        yield


def clear_temporary(workdir: Path) -> None:
    """Takes away what killed processes were writing, in a folder that this one holds."""
    if sharding.is_first_process():
        clear_left_over(workdir)
        for unfinished in list(workdir.rglob(f"checkpoints/*{UNFINISHED}*")):  # Orbax takes that of the same step alone
            take_away(unfinished)
    sharding.barrier("clearing")


def settle_config(cfg: ConfigDict, workdir: Path, planned: bool = False) -> None:
    """Writes workdir/config.json, or refuses a workdir that belongs to another config and has begun, with the keys that differ.

    Of a run that has begun and is older than a key of BEFORE, not OF_THE_CALL, the config takes what was done then, and where it says
    "auto" what the run began with. planned: nothing is written.
    """
    path = workdir / "config.json"
    theirs = look_into(path) if path.is_file() else None
    if path.is_file() and not is_config(theirs):
        raise UserError(
            f"{path} is damaged, or no config of a run of jdistill's; bring it back, or choose another --workdir"
        )
    begun = theirs is not None and has_begun(workdir)  # else a key was wrong, and is mended now
    began = _settle_open_keys(cfg, flat(theirs or {}) if begun else {})
    mine = json.loads(cfg.to_json())
    if begun:
        differ = _difference(began, flat(mine))
        if fixed := {key: of for key, of in differ.items() if key not in _may_change(cfg)}:
            rows = "\n".join(f"  {key}: {there!r} there, {now!r} now" for key, (there, now) in fixed.items())
            raise UserError(
                f"{workdir} belongs to a run with another config:\n{rows}\nChoose another --workdir, or give the same keys"
            )
        if not differ:
            return
        for key, (there, now) in differ.items():
            log.info("%s is %r now, and was %r: it does not change the student", key, now, there)
        # What was done before there was a key stays unsaid: the next call's own value of it is then not refused.
        mine = _without(mine, BEFORE.keys() - flat(theirs or {}).keys() - OF_THE_CALL)
    if sharding.is_first_process() and not planned:
        write_json(path, mine)


def settle_dtypes(cfg: ConfigDict, began: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Puts the name of a compute type wherever the config says "auto". All processes of a run call it together.

    Args:
      began: dotted keys of the run that the folder belongs to, which goes on in the type that it began in; of a new one none.
    """
    automatic = [
        key for key, value in flat(cfg.to_dict()).items() if key.rpartition(".")[2] in DTYPE_KEYS and value == AUTO
    ]
    fast = settled_dtype(AUTO) if automatic else ""
    for key in automatic:
        chosen = began.get(key, AUTO)
        chosen = fast if chosen == AUTO else chosen
        if key.rpartition(".")[2] == "teacher_dtype" and chosen == "float16":  # which a teacher does not answer in
            chosen = "float32"
        cfg.update_from_flattened_dict({key: chosen})
        log.info("%s: %s, by auto", key, chosen)


def _settle_open_keys(cfg: ConfigDict, began: dict[str, Any]) -> dict[str, Any]:
    """Gives the keys that the run of a folder lacks what was done before there were any, and "auto" its type.

    Returns: the dotted keys of that run, with those of BEFORE; empty where there is none.
    """
    asked = flat(cfg.to_dict())
    lacking = asked.keys() - began.keys() if began else set()
    older = {key: BEFORE[key] for key in lacking & BEFORE.keys()}
    taken = {key: value for key, value in older.items() if key not in OF_THE_CALL}
    for key in sorted(key for key, value in taken.items() if asked[key] not in (value, AUTO)):
        log.info("%s: %r, as what began here before there was this key; %r is not taken", key, taken[key], asked[key])
    cfg.update_from_flattened_dict(taken)
    settle_dtypes(cfg, began)
    if cfg.checkpoint == AUTO:
        cfg.checkpoint = began.get("checkpoint", exported_checkpoint(cfg))
    settled = flat(cfg.to_dict())
    return {key: settled.get(key) if value == AUTO else value for key, value in (began | older).items()}


def exported_checkpoint(cfg: ConfigDict) -> str:
    """Which checkpoint a run of this config exports, where it says auto too: best or last."""
    if cfg.checkpoint != AUTO:
        return cfg.checkpoint
    # A collection of one's own tells late checkpoints apart; some hundreds of scored pairs do not. A training that
    # ends by patience has had no better checkpoint since its best, and its last has not come to the schedule's end.
    patience = cfg.patience or cfg.get("tune", {}).get(
        "patience", 0
    )  # of a judge that is tuned before, by the same choice
    return BEST_CHECKPOINT if cfg.dev_retrieval or patience else LAST_CHECKPOINT


def _may_change(cfg: ConfigDict) -> set[str]:
    """MAY_CHANGE, but for whose index it is where checkpoints are chosen in it."""
    return MAY_CHANGE - ({"index_by"} if cfg.get("dev_retrieval") else set())


def has_begun(workdir: Path) -> bool:
    """Whether a run has done anything in its folder: its first folder, of a stage or an export, comes before its first step."""
    return (
        any(path.is_dir() for path in workdir.iterdir() if not _temporary(path)) or (workdir / "results.json").exists()
    )


def of_results(cfg: ConfigDict) -> dict[str, Any]:
    """The values of those OF_RESULTS keys that a config has."""
    return {key: cfg[key] for key in OF_RESULTS if key in cfg}


def _without(config: dict[str, Any], keys: Set[str], block: str = "") -> dict[str, Any]:
    """A config without some dotted keys. block: whose part it is, and a dot."""
    return {
        name: _without(value, keys, f"{block}{name}.") if isinstance(value, dict) else value
        for name, value in config.items()
        if f"{block}{name}" not in keys
    }


def _difference(theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = sorted(theirs.keys() | mine.keys())
    return {key: (theirs.get(key), mine.get(key)) for key in keys if theirs.get(key) != mine.get(key)}


def _temporary(path: Path) -> bool:
    return path.name.startswith(TEMPORARY)
