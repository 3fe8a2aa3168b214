"""The student of a run, from its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jdistill.core import files
from jdistill.core.errors import UserError
from jdistill.core.json_files import read_json, read_settings
from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.encoder import loading
from jdistill.encoder.encoder import Encoder
from jdistill.students.adapted import adapted_weights
from jdistill.train.average import averaged
from jdistill.train.checkpoint import BEST_CHECKPOINT, LAST_CHECKPOINT, Checkpoints
from jdistill.train.origins import BASE, check_same_origins
from jdistill.train.sealed import state_digest


def last_stage(workdir: Path) -> str:
    """The name of the last stage that has a student: by its place in the run, which its seal has; of older runs the one that began last."""
    begun = [path.parent for path in workdir.glob("*/student/modules.json")]
    order: dict[Path, Any] = {folder: (files.read_seal(folder, "student") or {}).get("stage") for folder in begun}
    if None in order.values():  # of a run from before seals had the place
        measured = workdir / measured_stage(workdir) / "student"
        order = {folder: (folder == measured, (folder / "modules.json").stat().st_mtime_ns) for folder in begun}
    return max(begun, key=order.__getitem__).parent.name if begun else "distil"


def load_student(workdir: Path, stage: str = "", step: int | None = None) -> Encoder:
    """The student of a stage (empty: the last that began) at a checkpoint (None: the one that the run exports, by its config's `checkpoint`).

    From its Orbax checkpoints and the encode contract beside them; the teacher is not needed, but for a student that is adapters on
    the teacher's own weights.
    """
    return load_trained(workdir, stage, step)[0]


def load_trained(workdir: Path, stage: str = "", step: int | None = None) -> tuple[Encoder, dict[str, Any], int]:
    """As load_student, and all parameters that were trained, or their average where the run kept one, and the step of the checkpoint."""
    stage = stage or last_stage(workdir)
    folder = workdir / stage
    if not (folder / "student" / "modules.json").is_file():
        begun = sorted(path.parent.parent.name for path in workdir.glob("*/student/modules.json"))
        why = f"it has {', '.join(begun)}" if begun else "it has not begun to train, or is no --workdir of a run"
        raise UserError(f"{workdir} holds no stage {stage!r} with a student; {why}")
    if files.read_seal(folder / "student", "student") and (wrong := files.damage(folder / "student", "student")):
        raise UserError(
            f"{folder / 'student'} is damaged ({', '.join(wrong)}); the run's own command, python -m jdistill.main, writes it again"
        )
    checkpoints = Checkpoints(folder / "checkpoints", keep_last=1_000_000)
    if not checkpoints.steps():
        raise UserError(
            f"{folder} keeps no checkpoint yet; its run saves one each config.checkpoint_every steps and after config.checkpoint_minutes"
        )
    if step is not None and step not in checkpoints.steps():
        raise UserError(f"{folder} keeps no checkpoint of step {step}; it has {checkpoints.steps()}")
    # The best, and where it is damaged, which is told, the next best; without dev scores, or where the run wants the last, the newest.
    config = read_settings(workdir / "config.json", optional=True)
    wanted = config.text(
        "checkpoint", BEST_CHECKPOINT, (BEST_CHECKPOINT, LAST_CHECKPOINT)
    )  # runs from before there was the key took the best
    best = [] if wanted == LAST_CHECKPOINT else checkpoints.best_first()
    taken, state, about = checkpoints.restore(None, (best or None) if step is None else [step])
    checkpoints.close()
    params = averaged(state["params"], state["opt_state"])
    weights = params.get("student")
    if weights is None:

        def check_base(base: Tree) -> None:
            check_same_origins(about, {BASE: state_digest(base)}, folder)

        weights = adapted_weights(workdir, folder / "student", params, check_base)
    log.info("the student of stage %s, step %d", stage, taken)
    return loading.load(str(folder / "student"), key="workdir", weights=weights), params, taken


def tell_unfinished(workdir: Path, step: int) -> None:
    """Warns of a run without results, whose student is exported as it is after this step."""
    if not (workdir / "results.json").is_file():
        log.warning(
            "WARNING: %s is not finished: this is its student after step %d, of which no figures are known",
            workdir,
            step,
        )


def measured_stage(workdir: Path) -> str:
    """The stage that a run's figures are of; "" where it has none yet."""
    return str(_measured(workdir).get("name", ""))


def measured_instead(workdir: Path, stage: str, step: int, asked: bool) -> str:
    """What a run's figures are of, where they are not of this stage and step, as a card says it; else "". asked: whether somebody chose the
    step; results from before they had the checkpoint's are then of another."""
    measured = _measured(workdir)
    if measured and measured["name"] != stage:
        return f"the student of its stage {measured['name']}"
    if "checkpoint" not in measured:
        return "the checkpoint that it exports" if asked else ""
    return "" if step == measured["checkpoint"] else f"its checkpoint of step {measured['checkpoint']}"


def _measured(workdir: Path) -> dict[str, Any]:
    """What results.json says of the stage that its figures are of; nothing where there are none yet."""
    done = (read_json(workdir / "results.json", None) or {}).get("training", {}).get("stages", [])
    return dict(done[-1]) if done else {}
