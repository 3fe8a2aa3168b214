"""bench/parts.py: a trained student's halves, each with the other of its teacher."""

from __future__ import annotations

import sys

import numpy as np
from commands import ROOT
from vocabulary_setting import encoder_of, made_up_texts

from configs import simtde
from jdistill.encoder.encoder import Encoder
from jdistill.students.transformer import make_student

sys.path += [str(ROOT / "bench")]  # behind tests: bench has a parity.py too
import parts

TEXTS = made_up_texts(60)


def started(teacher: Encoder, **keys: object) -> Encoder:
    cfg = simtde.get_config()
    cfg.student.update({"layers": 0, "embedding_size": 12, **keys})
    return make_student(cfg, teacher, parts.tokens_of(teacher, TEXTS))


def test_each_half_is_joined_with_the_teachers_other() -> None:
    teacher = encoder_of("word pieces", TEXTS)
    thin, whole = started(teacher, intermediate_size=-1), started(teacher)  # the same table, layers as the teacher's
    assert thin.config.intermediate_size < whole.config.intermediate_size == teacher.config.intermediate_size
    halves = dict(parts.halves(teacher, thin))
    assert list(halves) == ["itself", "its table, the teacher's layers", "the teacher's table, its layers"]
    np.testing.assert_array_equal(halves["its table, the teacher's layers"].encode(TEXTS), whole.encode(TEXTS))
    of_teacher = dict(parts.halves(teacher, whole))["the teacher's table, its layers"]
    np.testing.assert_array_equal(of_teacher.encode(TEXTS), teacher.encode(TEXTS))
    strange = halves["the teacher's table, its layers"].encode(TEXTS)
    assert min(np.abs(strange - other.encode(TEXTS)).max() for other in (teacher, thin)) > 1e-3
