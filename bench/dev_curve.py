"""The dev figures of runs at their checkpoints: what a run's log says of it, kept with the keys that made the run.

    python bench/dev_curve.py --config configs/d2llm.py:labels RUN [RUN …] [--stage tune]

Of each run, finished or not, the dev figures of every checkpoint and the loss that was logged last before it. The keys are
those of the run's config that differ from the config file; machine and load are those of the reading. Adds to
bench/results/dev_curve.json. No model is read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from record import command_line, joined, keep_rows, shown_run

from jdistill.config.file import read_config_file
from jdistill.core.errors import UserError
from jdistill.core.files import flat
from jdistill.core.json_files import read_json
from jdistill.report.facts import read_metrics

OF_DEV = "dev/"


def points(metrics: Path) -> list[dict[str, Any]]:
    """A row for each checkpoint of a stage's metrics.jsonl: step, loss, dev figures. Raises UserError where there is none."""
    curves, _ = read_metrics(metrics)
    of_dev = {name: curve for name, curve in curves.items() if name.startswith(OF_DEV)}
    steps = sorted({int(step) for at, _ in of_dev.values() for step in at})
    if not steps:
        raise UserError(f"{metrics} has no dev figures")
    rows = []
    for step in steps:
        logged, losses = curves.get("loss", (np.array([]), np.array([])))
        before = losses[logged <= step]
        row = {"step": step, "loss": float(before[-1]) if len(before) else None}
        rows.append(row | {name.removeprefix(OF_DEV): value for name, value in at_step(of_dev, step).items()})
    return rows


def at_step(curves: dict[str, tuple[np.ndarray, np.ndarray]], step: int) -> dict[str, float]:
    """The values of those curves that have one at a step."""
    return {name: float(values[at == step][0]) for name, (at, values) in curves.items() if step in at}


def changed_keys(run: Path, config: str) -> str:
    """The keys of a run's config that differ from a config file's, as its command would have them."""
    theirs, ours = flat(read_json(run / "config.json")), flat(read_config_file(config).to_dict())
    changed = {key: value for key, value in theirs.items() if key not in ours or ours[key] != value}
    return joined(f"--config.{key}={value}" for key, value in sorted(changed.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--config", required=True, help="the config file that they began with, and its variant")
    parser.add_argument("--stage", default="", help="one stage alone; empty: all that have dev figures")
    flags = parser.parse_args()
    for run in flags.runs:
        stages = sorted(run.glob(f"{flags.stage or '*'}/metrics.jsonl"))
        if not stages:
            parser.error(f"{run} has no {flags.stage or 'stage'}/metrics.jsonl")
        for metrics in stages:
            about = {"run": shown_run(run), "stage": metrics.parent.name}
            rows = [about | row for row in points(metrics)]
            made = {"config": flags.config, "changed": changed_keys(run, flags.config)}
            keep_rows("dev_curve", command_line(), rows, ("run", "stage", "step"), **made)
            for row in rows:
                print(" ".join(f"{name}={value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
