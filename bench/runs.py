"""A run of jdistill.main that a bench waits for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jdistill.core.files import look_into, write_json


def finished_run(config: str, workdir: Path, keys: Mapping[str, Any], extra: Sequence[str] = ()) -> dict[str, Any]:
    """The results of a run, which is started or goes on; one that is complete is not run again.

    Args:
      config: a config file of the checkout, with its variant.
      keys: values of config keys, without "config.".
      extra: further arguments of jdistill.main, which count above the keys.

    Raises: SystemExit where a signal has stopped the run, which then ends well and lies where the same command goes on.
    """
    workdir = workdir.absolute()
    command = [sys.executable, "-m", "jdistill.main", "--config", config, "--workdir", str(workdir)]
    subprocess.run(
        [*command, *(f"--config.{key}={value}" for key, value in keys.items()), *extra], cwd=ROOT, check=True
    )
    if not (workdir / "results.json").is_file():
        raise SystemExit(f"{workdir}: stopped; the same command goes on")
    results: dict[str, Any] = json.loads((workdir / "results.json").read_text())
    return results


def stage_export(workdir: Path, stage: str, out: Path) -> Path:
    """The export of a run's stage in the folder `out`, beside the run; made anew where the run has another config or other checkpoints
    than when it was made."""
    saved = {path.name: path.stat().st_mtime_ns for path in sorted((workdir / stage / "checkpoints").glob("*"))}
    made_by = {"config": look_into(workdir / "config.json"), "checkpoints": saved}
    made_of = out.with_name(f"{out.name}.json")
    if not out.is_dir() or look_into(made_of) != made_by:
        command = [
            sys.executable,
            "-m",
            "jdistill.export",
            "--workdir",
            str(workdir),
            "--stage",
            stage,
            "--out",
            str(out),
        ]
        subprocess.run(command, cwd=ROOT, check=True)
        write_json(made_of, made_by)
    return out


def computed_in(results: Iterable[Mapping[str, Any]]) -> str:
    """The type that runs computed in, by their results; all of them where they differ, as after another machine took a bench over."""
    return ", ".join(sorted({of["training"]["computed_in"] for of in results}))
