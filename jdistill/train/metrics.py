"""What a training stage tells of itself: its progress, metrics.jsonl, and the same as TensorBoard events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.progress import Progress, log
from jdistill.train.dataset import Data
from jdistill.train.optimizer import make_schedule


class MetricsWriter:
    """metrics.jsonl and TensorBoard events of a stage, one line a log interval."""

    def __init__(self, folder: Path):
        from tensorboardX import SummaryWriter  # here: it imports torch where that is installed, which takes seconds

        self.lines = open(folder / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115 - open as long as the stage runs
        # As many values wait as come: of a queue that is full the next would wait for a thread that a failed write has just ended.
        self.events = SummaryWriter(str(folder / "events"), max_queue=0)
        self.folder, self.events_ended = folder, False

    def write(self, step: int, values: dict[str, float]) -> None:
        """Writes a line: the step, and values by name."""
        self.lines.write(json.dumps({"step": step} | values) + "\n")
        self.lines.flush()
        for name, value in values.items():
            if self.writes_events():
                self.events.add_scalar(name, value, step)

    def writes_events(self) -> bool:
        """Whether the thread that writes events lives: one write that fails ends it, and who went on to hand it values would wait for ever.

        Its end is told once; metrics.jsonl has the same figures.
        """
        if not self.events_ended and not self.events.file_writer.event_writer._worker.is_alive():
            self.events_ended = True
            log.warning(
                "WARNING: TensorBoard events of %s are written no more: a write failed; metrics.jsonl goes on",
                self.folder,
            )
        return not self.events_ended

    def close(self) -> None:
        """Closes both files."""
        self.lines.close()
        if self.writes_events():
            self.events.close()


class Recorder:
    """Progress, metrics of each log interval, and dev scores of a stage; the first process alone writes files.

    Args:
      steps: of the whole stage.
      done: those before this process began, of a stage that is resumed.
    """

    def __init__(self, cfg: ConfigDict, data: Data, folder: Path, steps: int, done: int):
        """steps: of the whole stage. done: those before this process began, of a stage that is resumed."""
        self.steps, self.steps_per_epoch = steps, data.batches.steps_per_epoch
        self.texts_per_step, self.learning_rate = cfg.batch_size * data.texts_per_row, cfg.learning_rate
        self.schedule = make_schedule(cfg, steps)
        self.writer = MetricsWriter(folder) if sharding.is_first_process() and done < steps else None
        self.progress = Progress(f"training {folder.name}", steps, "steps", done)
        self.interval_start = time.monotonic()  # later by what the clock stood still
        self.newest = ""  # loss that was seen, for the bar

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """The time that is spent within counts towards the rate of no interval."""
        stopped = time.monotonic()
        yield
        self.interval_start += time.monotonic() - stopped

    def advance(self, window: list[dict[str, float]], steps: int) -> None:
        """Counts steps; beside the bar stands the newest loss of the window."""
        self._note(window)
        self.progress.advance(steps, self.newest)

    def _note(self, window: list[dict[str, float]]) -> None:
        if window:
            self.newest = f"loss {window[-1]['loss']:.5f}"

    def write_interval(self, step: int, window: list[dict[str, float]]) -> None:
        """Writes the means of an interval's metrics, with learning rate, epoch and sentences a second.

        Args:
          step: the last of the interval.
          window: metrics by name, one entry a step.
        """
        now = time.monotonic()
        self._note(window)  # the next to advance may have an empty one
        line = {name: float(np.mean([metrics[name] for metrics in window])) for name in window[0]}
        line |= {
            "lr": self.learning_rate * float(self.schedule(step - 1)),
            "epoch": step / self.steps_per_epoch,
            "sentences_per_s": len(window) * self.texts_per_step / (now - self.interval_start),
        }
        if self.writer:
            self.writer.write(step, line)
        self.interval_start = now

    def write_scores(self, step: int, figures: dict[str, float]) -> None:
        """Logs and writes the dev figures of a checkpoint."""
        named = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        log.info("step %d of %d: %s", step, self.steps, named)
        if self.writer:
            self.writer.write(step, {f"dev/{name}": value for name, value in figures.items()})

    def close(self) -> None:
        """Closes the bar and the files."""
        self.progress.close()
        if self.writer:
            with suppress(OSError):  # on a full disk the lines that still wait in a buffer are lost, as the loop says
                self.writer.close()
