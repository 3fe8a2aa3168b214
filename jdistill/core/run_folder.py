"""Whether a folder is that of a run, and what it exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.core.files import look_into

RUN = "run"  # kind of the seal of a run's folder, which vouches for results and report
WITH_INDEX = ", with --config.index_texts above 0"  # what the command of a run with an index has

TRIALS_FOLDER = "trials"  # of a sweep's folder: a run's folder each
OF_ANY_RUN = {"method", "teacher", "text"}  # keys that the config of any run has


def check_is_run(workdir: Path) -> None:
    """Refuses a folder that is no run's."""
    if not workdir.is_dir():
        raise UserError(f"--workdir={workdir}: no such folder; give the folder of a run (it holds config.json)")
    if not is_config(look_into(workdir / "config.json")):
        raise UserError(f"--workdir={workdir} holds no config.json of a run of jdistill's; give the folder of a run")


def part_of_run(workdir: Path, part: str, keys: str = "") -> Path:
    """A folder that a run writes at its end, "export" or "index".

    keys: what the command must have for it to be written, for the message.

    Raises: UserError where it is missing.
    """
    if not (workdir / part).is_dir():
        _refuse_sweep(workdir, str(workdir), "workdir")
        raise UserError(
            f"{workdir / part} is missing; it is written at the end of a run: "
            f"python -m jdistill.main --config FILE --workdir {workdir}{keys}"
        )
    return workdir / part


def refuse_run(folder: Path, source: str, key: str) -> None:
    """Refuses the folder of a run or a sweep where a model is wanted, and says where its student is, or what is missing for one.

    Args:
      folder: where the model was looked for.
      source, key: what the user named, and by which flag, for the message.
    """
    if (folder / "modules.json").is_file():
        return
    if (folder / "export" / "modules.json").is_file():
        raise UserError(f"--{key}={source} is the folder of a run; its student is {source}/export")
    if is_config(look_into(folder / "config.json")):
        _refuse_sweep(folder, source, key)
        without = "without its student" if (folder / "results.json").is_file() else "that has not ended"
        raise UserError(
            f"--{key}={source} is the folder of a run {without}; the command that began it writes that into {source}/export"
        )


def _refuse_sweep(folder: Path, source: str, key: str) -> None:
    if (folder / TRIALS_FOLDER).is_dir():
        raise UserError(
            f"--{key}={source} is the folder of a sweep, which keeps scores and no student: train the best setting by python -m jdistill.main"
        )


def export_of(source: str) -> str:
    """The export of a run's folder; any other source as it is."""
    export = Path(source) / "export"
    return str(export) if export.is_dir() else source


def is_config(content: Any) -> bool:
    """Whether a JSON file's content is the config of a run, and not of a user's own program, whose may name a method too."""
    return isinstance(content, dict) and isinstance(content.get("method"), str) and content.keys() >= OF_ANY_RUN
