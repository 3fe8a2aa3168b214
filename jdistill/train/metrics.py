"""What a training stage writes down of itself: metrics.jsonl, and the same as TensorBoard events."""

from __future__ import annotations

import json
from pathlib import Path

from tensorboardX import SummaryWriter


class MetricsWriter:
    """metrics.jsonl and TensorBoard events of a stage, one line a log interval."""

    def __init__(self, folder: Path):
        self.lines = open(folder / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115 - open as long as the stage runs
        self.events = SummaryWriter(str(folder / "events"))

    def write(self, step: int, values: dict[str, float]) -> None:
        self.lines.write(json.dumps({"step": step} | values) + "\n")
        self.lines.flush()
        for name, value in values.items():
            self.events.add_scalar(name, value, step)

    def close(self) -> None:
        self.lines.close()
        self.events.close()
