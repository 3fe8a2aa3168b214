"""The folder of a run as the report reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG = {"method": "simtde", "teacher": "pkg:some teacher/model", "batch_size": 64, "loss": {"alpha": 0.5}}


def line(step: int, **values: float) -> str:
    return (
        json.dumps(
            {
                "step": step,
                "loss": 1 / step,
                "token_mse": 0.5 / step,
                "lr": 1e-4,
                "sentences_per_s": 120.0,
                "epoch": 0.1,
                **values,
            }
        )
        + "\n"
    )


def make_run(folder: Path, metrics: str | None = None, results: dict[str, Any] | None = None) -> Path:
    (folder / "distil").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    if metrics is not None:
        (folder / "distil" / "metrics.jsonl").write_text(metrics)
    if results is not None:
        (folder / "results.json").write_text(json.dumps(results))
    return folder
