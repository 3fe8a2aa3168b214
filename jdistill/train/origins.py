"""What a stage was begun with, as its checkpoints say it: a run that resumes goes on with the same, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jdistill.core import sharding
from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.models.host_products import describe_compute
from jdistill.train.checkpoint import steps_in
from jdistill.train.dataset import Data
from jdistill.train.sealed import read_description

ORIGINS_KEY = "origins"  # of a checkpoint's description; those of older versions have none
STUDENT_VOCABULARY, BASE = "the student's vocabulary", "the base model"
READS_AS = "how the student reads a text"
OF_DEV_SETS, HELD_OUT = "what the dev sets hold", "the text that is held out"
TRANSLATED_OF = "what the teacher is asked for each translation"
FOLLOW_TEXT = {
    STUDENT_VOCABULARY,
    BASE,
    READS_AS,
    HELD_OUT,
    TRANSLATED_OF,
}  # a vocabulary that is cut to the text, and what it is part of
# What it would come to that one of them is another, and what to do.
WHY_NOT = {
    STUDENT_VOCABULARY: "its tokens would mean others than those that were trained. One that is cut follows the texts of all stages; bring the "
    "old files back, or choose a new --workdir",
    READS_AS: "other tokenizer rules, prompts, length, pooling or projections than those that were trained. Bring the old files back, or "
    "choose a new --workdir",
    OF_DEV_SETS: "its checkpoints' dev scores would be compared with those of another set. Bring the old files back, or choose a new --workdir",
    HELD_OUT: "its checkpoints' dev scores would be compared with those of other texts. Bring the old text back, or choose a new --workdir",
    TRANSLATED_OF: "a part of training would have had other vectors. Bring the old --config.text_pairs back, or choose a new --workdir",
}
THEN = ", then "  # between the devices of one sitting and those of the next


def begun_with(data: Data, steps: int) -> dict[str, Any]:
    """What a checkpoint's description says of its stage's data, steps, models and devices, before the first step."""
    of_data = {"texts": len(data), "data": data.fingerprint, "steps": steps, "seconds": 0.0}
    return of_data | {ORIGINS_KEY: dict(data.origins), "devices": describe_compute()}


def check_goes_on(data: Data, steps: int, folder: Path) -> None:
    """As check_same_run by the newest checkpoint in a stage's folder that says what it is, before anything in the folder is replaced; before
    that as check_same_data, so that all processes end by the same error."""
    now, checkpoints = begun_with(data, steps), folder / "checkpoints"
    check_same_data(now, folder)
    described = (read_description(checkpoints / str(step)) for step in reversed(steps_in(checkpoints)))
    if saved := next(filter(None, described), None):
        check_same_run(saved, now, folder)


def check_same_data(about: Mapping[str, Any], folder: Path) -> None:
    """Raises UserError where the processes of a run have read different data, of which each would take its share of another order.

    Args:
      about: a checkpoint's description, as each process would write it; all of them call it.
      folder: of the stage.
    """
    mine = np.frombuffer(bytes.fromhex(digest(about["data"], str(about["texts"]), str(about["steps"]))), np.uint32)
    if sharding.any_process(not np.array_equal(sharding.broadcast(mine), mine)):
        raise UserError(
            f"{folder}: not all processes of the run have read the same training data; this one has {about['texts']:,} texts for "
            f"{about['steps']:,} steps. Give all machines the same files, best on a file system that they share"
        )


def check_same_run(saved: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """Raises UserError where data, steps or models are not those that a checkpoint's stage began with.

    Args:
      saved: the checkpoint's description.
      now: this run's.
      folder: of the stage.
    """
    if saved["data"] != now["data"]:
        # Who judged data is part of it.
        of_teachers = {name: now[ORIGINS_KEY][name] for name in now[ORIGINS_KEY].keys() - FOLLOW_TEXT}
        check_same_origins(saved, of_teachers, folder)
        raise UserError(
            f"the training text has changed since {folder} began: it was {saved['texts']} texts and is now {now['texts']}"
            f"{' (of other content or order)' if saved['texts'] == now['texts'] else ''}. Bring the old text back, or choose a new --workdir"
        )
    if saved["steps"] != now["steps"]:
        raise UserError(
            f"{folder} began as a run of {saved['steps']} steps and this config asks for {now['steps']}; choose a new --workdir"
        )
    check_same_origins(saved, now[ORIGINS_KEY], folder)


def check_same_origins(saved: Mapping[str, Any], origins: Mapping[str, str], folder: Path) -> None:
    """Raises UserError for a model that is another than a checkpoint says; what it says nothing of passes.

    Args:
      saved: the checkpoint's description.
      origins: a fingerprint by the name of what has it.
      folder: of the stage.
    """
    was = saved.get(ORIGINS_KEY, {})
    changed = [name for name, fingerprint in origins.items() if was.get(name, fingerprint) != fingerprint]
    if told := next((name for name in WHY_NOT if name in changed), None):
        raise UserError(f"{told} has changed since {folder} began: {WHY_NOT[told]}")
    if changed:
        raise UserError(
            f"{' and '.join(changed)} changed since {folder} began: other weights, tokenizer, prompts, length or type. Bring the old "
            "files back, or choose a new --workdir"
        )


def devices_over(saved: Mapping[str, Any], goes_on: bool) -> str:
    """The devices of a stage that is resumed, in words: those that began it, and this process's where they are others.

    Args:
      saved: the checkpoint's description; one of before it named devices counts as this process's.
      goes_on: whether any step is left.
    """
    before, now = saved.get("devices", ""), describe_compute()
    if before and (not goes_on or before.split(THEN)[-1] == now):
        return str(before)
    return f"{before}{THEN}{now}" if before else now
