"""What --plain makes of a student: a pooler that sentence-transformers has, without what was trained on another's vectors."""

from __future__ import annotations

from dataclasses import replace

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.formats.st_writer import is_built_in, nearest_built_in


def with_built_in_pooler(student: Encoder) -> Encoder:
    """The student, its pooler one that sentence-transformers has. Raises UserError where a projection follows the pooler."""
    if is_built_in(student.pooling):
        return student
    if student.dense:
        raise UserError(f"--plain: the student projects what {student.pooling} gives, so its pooler cannot be changed")
    log.info("pooler %s becomes %s", student.pooling, nearest_built_in(student.pooling))
    return replace(student, pooling=nearest_built_in(student.pooling), pooler={})


def without_unfit(params: Tree, is_other_pooler: bool) -> Tree:
    """What was trained, without what --plain leaves out: an interaction module and, where the pooler became another, a classifier's head."""
    unfit = {"iem": "the interaction module was trained on PMA's vectors"}
    if is_other_pooler:
        unfit["head"] = "the classifier's head was trained on another pooler's vectors"
    for name in unfit.keys() & params.keys():
        log.info("%s, and is left out", unfit[name])
    return {name: tensors for name, tensors in params.items() if name not in unfit}
