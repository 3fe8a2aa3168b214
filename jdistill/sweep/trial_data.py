"""What all trials of a sweep are trained and scored on: other files under the old names would rank scores that are no rivals."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from jdistill.core.digest import digest
from jdistill.core.errors import UserError
from jdistill.core.files import flat, look_into, write_json
from jdistill.data.text.stored_texts import fingerprint_of
from jdistill.feeds.dev_score import dev_sets_digest
from jdistill.run.stages import Run, prepare, train_stages
from jdistill.run.workdir import OF_THE_CALL
from jdistill.train.early_end import GiveUp
from jdistill.train.origins import OF_DEV_SETS

DATA = "data.json"  # in a sweep's folder: name of a part of the data -> the values of the keys that decide it -> its fingerprint
# Keys, and beginnings of keys, that change neither a text nor what a teacher says of it.
OF_TRAINING = (
    "learning_rate", "schedule", "warmup", "weight_decay", "adam_", "clip_norm", "average", "optimizer", "epochs", "max_steps", "batch_size",
    "chunk_size", "block_size", "patience", "checkpoint", "loss.", "hsic.", "kernel", "lora.", "finetune.", "tune.", "temperature", "length_",
    "student.layers", "student.dropout", "student.start", "student.hidden_size", "student.embedding_size", "student.intermediate_size",
)  # fmt: skip


def train_trial(cfg: ConfigDict, folder: Path, give_up: GiveUp) -> None:
    """Trains a trial of the sweep in whose trials/ `folder` lies, without export and evaluation. What it read is noted with its first dev
    score: until then there is nothing to compare, and who was refused may bring other files."""
    run = prepare(cfg)
    data = compared_data(run, folder.parents[1])

    @cache
    def note() -> None:
        write_json(folder.parents[1] / DATA, data)

    def scored(step: int, score: float, last: bool = False) -> bool:
        note()
        return give_up(step, score, last)

    train_stages(run, folder, give_up=scored)


def compared_data(run: Run, sweep: Path) -> dict[str, Any]:
    """Holds what a trial reads against what earlier trials of the same values have read.

    Args:
      run: the trial, with its data.
      sweep: the folder of the whole.

    Returns: what DATA is to hold then.

    Raises: UserError where dev sets, training text, held-out text or a teacher are others than they were.
    """
    values = flat(run.cfg.to_dict())
    dev_keys = [key for stage in run.stages for key in stage.data.dev_keys]
    of_dev = digest(repr([values["method"], values["dev_pairs"], values["dev_retrieval"]]))
    passed = {*OF_THE_CALL, "seed"}  # which draws batches, and no data
    own = {key: value for key, value in values.items() if key not in passed and not key.startswith(OF_TRAINING)}
    of_text = digest(repr(sorted(own.items())))
    parts = {"the training text": fingerprint_of(run.shared.corpus.train)}
    for feed in run.feeds:
        parts |= feed.origins()
    now = {OF_DEV_SETS: (of_dev, dev_sets_digest(run.cfg, dev_keys))}
    now |= {name: (of_text, fingerprint) for name, fingerprint in parts.items()}
    kept: dict[str, Any] = look_into(sweep / DATA) or {}
    for name, (decided_by, fingerprint) in now.items():
        if kept.setdefault(name, {}).setdefault(decided_by, fingerprint) != fingerprint:
            raise UserError(
                f"{name} has changed since {sweep} began, and its trials' scores would be compared with those of other data. Bring the old "
                "files back, or choose a new --workdir"
            )
    return kept
