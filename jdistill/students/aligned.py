"""Students in their teacher's space: W exported as the last projection, and what pulls a text's two vectors together.

Such a student's queries can be asked of an index that the teacher made. Source: LEAF (Vujanic and Rueckstiess 2025), whose students
are trained by the squared distance of unit vectors alone.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from jdistill.core.errors import UserError
from jdistill.core.types import Array, Tree
from jdistill.encoder.encoder import Encoder
from jdistill.losses.embedding import HIGHEST, unit
from jdistill.students.transformer import projected, to_teacher


def check_aligned(cfg: ConfigDict) -> None:
    """Raises UserError for an aligned student of a run whose later stage would take it out of the teacher's space."""
    if cfg.loss.align and cfg.triplets:
        raise UserError(
            f"--config.loss.align={cfg.loss.align} keeps the student in the teacher's space, which fine-tuning on --config.triplets "
            "leaves; set --config.triplets= to distil alone"
        )


def with_W(cfg: ConfigDict, student: Encoder, teacher_width: int) -> tuple[Encoder, Tree]:
    """The student, and what is trained of it: with cfg.loss.align W is its last projection, else it stands beside it and is dropped.

    Args:
      student: that projects to nothing yet.
      teacher_width: T.

    Returns: the student, and its weights under "student", with W float32 [D, T] beside them or among them.
    """
    W_DxT = to_teacher(student.dim, teacher_width, np.random.default_rng([cfg.seed, 2]))
    if not cfg.loss.align:
        return student, {"student": student.weights(), "W": W_DxT}
    student = projected(student, W_DxT)
    return student, {"student": student.weights()}


def in_teachers_space(params: Tree, reps: dict[str, Array]) -> Array:
    """W s, float32 [n, T], wherever W stands.

    Args:
      params: as with_W gives them.
      reps: of students.transformer.representer.
    """
    if "W" not in params:
        return reps["output"].astype(jnp.float32)
    return jnp.dot(reps["sentence"].astype(jnp.float32), params["W"], precision=HIGHEST)


def distance_of_units(Ws_nxT: Array, t_nxT: Array) -> Array:
    """Mean over texts of |W s / |W s| - t / |t||², which is 2 - 2 cos; of 0 to 4."""
    return jnp.square(unit(Ws_nxT) - unit(t_nxT)).sum(-1).mean()
