"""The student of a run as it starts, before its first step: the trivial baseline beside what the run trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ml_collections import ConfigDict

import jdistill
from jdistill.core.errors import UserError
from jdistill.core.files import flat
from jdistill.run.stages import open_stage, prepare
from jdistill.run.workdir import BEFORE


def config_of(workdir: Path, defaults: ConfigDict) -> ConfigDict:
    """A run's config, with what its method's config file has had added since; of that what runs did before there was the key."""
    cfg = defaults.copy_and_resolve_references()
    theirs = json.loads((workdir / "config.json").read_text())
    lacking = flat(cfg.to_dict()).keys() - flat(theirs).keys()
    with cfg.ignore_type():
        cfg.update_from_flattened_dict({key: BEFORE[key] for key in lacking & BEFORE.keys()})
        cfg.update(theirs)
    return cfg


def untrained_student(
    workdir: Path, defaults: ConfigDict, changes: Mapping[str, Any] = MappingProxyType({})
) -> jdistill.Encoder:
    """The student that the run's first stage starts from, made anew by what the run itself makes it by.

    Args:
      workdir: of a run that has begun, or is complete; its answers are cached, so that hardly any text is asked anew.
      defaults: of its method's config file: keys that have been added since.
      changes: dotted keys by which it differs from the run's own.

    Raises: UserError where the first stage trains no student.
    """
    cfg = config_of(workdir, defaults)
    cfg.update_from_flattened_dict(changes)
    run = prepare(cfg)
    if run.stages[0].trains != "student":
        raise UserError(f"{workdir}: the first stage, {run.stages[0].name}, trains no student")
    method, _ = open_stage(run.stages[0], run.feeds[0], run.shared.start, run.is_teacher)
    return method.trained(method.params)
