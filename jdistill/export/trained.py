"""The student of a run, from its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.json_files import read_settings
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.students.adapted import adapted_weights
from jdistill.train.average import averaged
from jdistill.train.checkpoint import BEST_CHECKPOINT, LAST_CHECKPOINT, Checkpoints


def load_student(workdir: Path, stage: str = "", step: int | None = None) -> Encoder:
    """The student of a stage (empty: the one that began last) at a checkpoint (None: the one that the run exports, by its config's `checkpoint`).

    From its Orbax checkpoints and the encode contract beside them; the teacher is not needed, but for a student that is adapters on
    the teacher's own weights.
    """
    return load_trained(workdir, stage, step)[0]


def load_trained(workdir: Path, stage: str = "", step: int | None = None) -> tuple[Encoder, dict[str, Any]]:
    """As load_student, and all parameters that were trained, or their average where the run kept one."""
    begun = sorted(workdir.glob("*/student/modules.json"), key=lambda path: path.stat().st_mtime_ns)
    stage = stage or (begun[-1].parts[-3] if begun else "distil")
    folder = workdir / stage
    if not (folder / "student" / "modules.json").is_file():
        raise UserError(f"{workdir} holds no stage {stage!r} with a student; is it the --workdir of a run?")
    if files.read_seal(folder / "student", "student") and (wrong := files.damage(folder / "student", "student")):
        raise UserError(
            f"{folder / 'student'} is damaged ({', '.join(wrong)}); the run's own command, python -m jdistill.main, writes it again"
        )
    checkpoints = Checkpoints(folder / "checkpoints", keep_last=1_000_000)
    if step is not None and step not in checkpoints.steps():
        raise UserError(f"{folder} keeps no checkpoint of step {step}; it has {checkpoints.steps()}")
    # The best, and where it is damaged, which is told, the next best; without dev scores, or where the run wants the last, the newest.
    config = read_settings(workdir / "config.json", optional=True)
    wanted = config.text(
        "checkpoint", BEST_CHECKPOINT, (BEST_CHECKPOINT, LAST_CHECKPOINT)
    )  # runs from before there was the key took the best
    best = [] if wanted == LAST_CHECKPOINT else checkpoints.best_first()
    _, state, _ = checkpoints.restore(None, (best or None) if step is None else [step])
    checkpoints.close()
    params = averaged(state["params"], state["opt_state"])
    weights = params["student"] if "student" in params else adapted_weights(workdir, folder / "student", params)
    return loading.load(str(folder / "student"), key="workdir", weights=weights), params
