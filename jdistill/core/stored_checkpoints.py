"""Which of a run's files are of which checkpoint, and whether a folder lacks one that it ought to have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

UNFINISHED = "orbax-checkpoint-tmp"  # in the name of a checkpoint that is being written
CHECKPOINT = re.compile(r"(.*/)?checkpoints/\d+(?=/)")  # the folder of one, at the beginning of a file's name
ENDED = "-ended"  # ends the name of a file beside a stage's checkpoints, all of which were deleted since they are no longer wanted


def checkpoints_of(names: Iterable[str]) -> set[str]:
    """The folders of the checkpoints that files belong to."""
    return {match[0] for name in names if (match := CHECKPOINT.match(name))}


def holds_all(here: Collection[str], listed: Collection[str]) -> bool:
    """Whether a folder holds what is listed, but for checkpoints that a run itself deleted: as a whole, and others of the stage are there, or
    its word that they are no longer wanted. A cleaner of caches leaves neither.

    Args:
      here, listed: names of files, with their folders.
    """
    kept = checkpoints_of(here)
    stages = {checkpoint.rpartition("/")[0] for checkpoint in kept}
    for name in set(listed) - set(here):
        match = CHECKPOINT.match(name)
        if not match or match[0] in kept:
            return False
        stage = match[0].rpartition("/")[0]
        if stage not in stages and stage + ENDED not in here:
            return False
    return True
