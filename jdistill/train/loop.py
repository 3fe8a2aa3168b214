"""THE training loop: steps over a mesh, checkpoints that resume exactly, metrics. There is no second one."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.memory import give_back_freed_memory
from jdistill.core.progress import Progress, log
from jdistill.core.types import Array, Tree
from jdistill.data.batching.batches import Batches
from jdistill.train.checkpoint import Checkpoints, abstract
from jdistill.train.method import Method
from jdistill.train.metrics import MetricsWriter
from jdistill.train.optimizer import make_optimizer, make_schedule
from jdistill.train.step import (
    TrainState,
    host_params,
    init_state,
    jit_step,
    make_step,
    place_frozen,
)

# Steps that may be under way before their loss is looked at: keeps the device busy and the stop at a NaN prompt.
LAG = 2
MOST_SKIPPED = 40  # steps in a row that float16 may overflow: the loss scale has long been as low as it gets


@dataclass(frozen=True)
class Data:
    """The training data of a stage: the order of batches, and the arrays of the rows of one."""

    batches: Batches
    rows_of: Callable[[int, int, np.ndarray], dict[str, np.ndarray]]  # (step, width, rows int64 [n]) -> arrays [n, ...]
    fingerprint: str  # of the content and its order
    unit: str  # what a row is, for the log: "texts" or "triplets"
    texts_per_row: int = 1

    def __len__(self) -> int:
        return len(self.batches.lengths)

    def batch(self, step: int) -> dict[str, np.ndarray]:
        """This process's rows of the global batch of a step."""
        width, rows = self.batches.at(step)
        share = len(rows) // sharding.process_count()
        return self.rows_of(step, width, rows[sharding.process_index() * share :][:share])


def total_steps(cfg: ConfigDict, steps_per_epoch: int) -> int:
    return cfg.max_steps or max(1, math.ceil(cfg.epochs * steps_per_epoch))


class Diverged(UserError):
    """A loss or parameters that are not finite, or float16 that overflows at every step."""


class Interrupted(Exception):
    """A signal asked the run to stop; its state is saved."""

    def __init__(self, caught: list[str], step: int):
        self.name, self.step = (caught[0] if caught else "a signal in another process"), step
        super().__init__(f"{self.name} at step {step}")


@contextmanager
def catch_signals() -> Iterator[list[str]]:
    """Collects SIGTERM and SIGINT as names in a list instead of dying; a second SIGINT interrupts at once."""
    caught: list[str] = []

    def handle(number: int, _: Any) -> None:
        if signal.Signals(number) is signal.SIGINT and caught:
            raise KeyboardInterrupt
        caught.append(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def train(
    cfg: ConfigDict,
    method: Method,
    data: Data,
    folder: Path,
    score: Callable[[Tree], dict[str, float]],
    give_up: Callable[[int, float], bool] | None = None,
) -> tuple[Tree, float, int]:
    """Trains a stage to its end in `folder`, from its newest checkpoint if there is one.

    Returns the best parameters, the seconds its training took, those before a resumed checkpoint included, and its steps.

    score: parameters -> dev figures; "score" among them, higher is better, decides which checkpoint is best.
    give_up: told step and "score" of each checkpoint, it may end the training there. Raises
    Interrupted after a signal (state saved), UserError for a loss that is not finite, a full disk, or data that
    changed since the stage began.
    """
    steps = total_steps(cfg, data.batches.steps_per_epoch)
    mesh = sharding.global_mesh()
    if cfg.batch_size % mesh.size:
        raise UserError(f"--config.batch_size={cfg.batch_size} does not divide by the {mesh.size} devices")
    optimizer = make_optimizer(cfg, steps)
    step_fn = jit_step(make_step(method, optimizer, cfg.seed, cfg.student.dropout > 0, cfg.chunk_size), mesh)
    state = init_state(method, optimizer, mesh)
    frozen = place_frozen(cfg, method, mesh)
    checkpoints = Checkpoints(folder / "checkpoints", cfg.keep_last, cfg.checkpoint_every)
    about: dict[str, Any] = {
        "texts": len(data),
        "data": data.fingerprint,
        "steps": steps,
        "seconds": 0.0,
    }
    done, spent = 0, 0.0
    if checkpoints.steps():
        done, restored, was = checkpoints.restore(abstract(state)._asdict())
        _same_data(was, about, folder)
        spent = about["seconds"] = was["seconds"]
        state = TrainState(**restored)
        checkpoints.drop_after(done)
        log.info("resuming %s at step %d of %d", folder.name, done, steps)
    else:
        log.info(
            "training %s: %d steps of %d %s, %.2f epochs of %d, padding %.1f %%",
            folder.name,
            steps,
            cfg.batch_size,
            data.unit,
            steps / data.batches.steps_per_epoch,
            len(data),
            100 * data.batches.padding,
        )
    writer = MetricsWriter(folder) if sharding.is_first_process() and done < steps else None
    # The first look asks the teacher for what its cache lacks, which is no part of training's time and rate.
    if done < steps:
        data.batch(done)
    started = time.monotonic()
    schedule, meter = make_schedule(cfg, steps), Progress(f"training {folder.name}", steps, "steps", done)
    waiting: list[tuple[int, dict[str, Array]]] = []
    window: list[dict[str, float]] = []
    window_start = time.monotonic()
    skipped, loss_scale = 0, 1.0  # skipped: steps in a row
    given_up = False
    seen: set[tuple[tuple[int, ...], ...]] = set()  # shapes of the batches

    def settle(keep: int) -> None:
        """Looks at the metrics of all but the newest `keep` steps, in order, and stops at the first that is not finite."""
        nonlocal skipped, loss_scale
        while len(waiting) > keep:
            number, metrics = waiting.pop(0)
            values = {name: float(value) for name, value in metrics.items()}
            if not all(map(math.isfinite, values.values())):
                checkpoints.wait()
                raise _diverged(number, f"the loss is not finite: {values}", checkpoints)
            skipped, loss_scale = (skipped + 1 if values.get("skipped") else 0), values.get("loss_scale", 1.0)
            if skipped == MOST_SKIPPED:
                checkpoints.wait()
                raise _overflows(number, skipped, loss_scale, checkpoints)
            window.append(values)

    def refuse_untrained(at: int) -> None:
        """A run of fewer than MOST_SKIPPED steps that skipped each of them has trained nothing."""
        if skipped == at:
            checkpoints.wait()
            raise _overflows(at, skipped, loss_scale, checkpoints)

    def save(at: int, with_score: bool) -> None:
        nonlocal given_up
        settle(0)
        if at == steps:
            refuse_untrained(at)
        if not math.isfinite(float(optax.global_norm(state.params))):  # the update that the next loss would have shown
            checkpoints.wait()
            raise _diverged(at, "the parameters are not finite", checkpoints)
        figures = score(host_params(state)) if with_score else {}
        if figures:
            log.info(
                "step %d of %d: %s", at, steps, ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
            )
            if writer:
                writer.write(at, {f"dev/{name}": value for name, value in figures.items()})
        if give_up and "score" in figures:  # told before it is saved: a kill in between scores the step again
            given_up = give_up(at, figures["score"])
        about["seconds"] = spent + time.monotonic() - started
        checkpoints.save(at, state._asdict(), about, figures.get("score"))

    def out_of_patience() -> bool:
        """Whether the best dev score lies cfg.patience checkpoints back. Told by the checkpoints alone, so that a resumed run
        stops where the uninterrupted one does."""
        best = checkpoints.best_step() if cfg.patience and done % cfg.checkpoint_every == 0 else None
        return best is not None and done - best >= cfg.patience * cfg.checkpoint_every

    with catch_signals() as caught:
        try:
            while done < steps and not out_of_patience() and not given_up:
                batch = sharding.shard_rows(data.batch(done), mesh)
                if (shapes := tuple(np.shape(x) for x in jax.tree.leaves(batch))) not in seen:
                    seen.add(shapes)
                    settle(0)  # no step is under way
                    give_back_freed_memory()  # the holes that steps of other widths left
                state, metrics = step_fn(state, frozen, batch)
                done += 1
                waiting.append((done, metrics))
                settle(LAG)
                meter.advance(1, f"loss {window[-1]['loss']:.5f}" if window else "")
                if done % cfg.log_every == 0:
                    settle(0)
                    now = time.monotonic()
                    line = {name: float(np.mean([m[name] for m in window])) for name in window[0]}
                    line |= {
                        "lr": cfg.learning_rate * float(schedule(done - 1)),
                        "epoch": done / data.batches.steps_per_epoch,
                        "sentences_per_s": len(window) * cfg.batch_size * data.texts_per_row / (now - window_start),
                    }
                    if writer:
                        writer.write(done, line)
                    window, window_start = [], now
                if done % cfg.checkpoint_every == 0 or done == steps:
                    save(done, with_score=True)
                    window_start = time.monotonic()
                if (
                    (sharding.process_count() == 1 or done % 10 == 0)
                    and sharding.any_process(bool(caught))
                    and done < steps
                ):
                    if done not in checkpoints.steps():
                        save(done, with_score=False)
                    checkpoints.wait()
                    raise Interrupted(caught, done)
            if done < steps and not given_up:
                refuse_untrained(done)
                log.info("stopped at step %d: no better dev score since step %s", done, checkpoints.best_step())
            checkpoints.wait()
            if sharding.any_process(bool(caught)):  # in the last step or its scoring: what comes next must not begin
                raise Interrupted(caught, done)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be written ({error}). Is the disk full? The checkpoints {checkpoints.on_disk()} are whole; "
                "make room and run the same command again"
            ) from error
        finally:
            meter.close()
            if writer:
                with suppress(OSError):  # on a full disk the lines that still wait in a buffer are lost, as said above
                    writer.close()
    best, taken = checkpoints.best_first(), done
    if best and best[0] != done:
        log.info("the best dev score is that of step %d, which is exported", best[0])
        taken, restored, _ = checkpoints.restore(abstract(state)._asdict(), best)
        state = TrainState(**restored)
    checkpoints.drop_old(taken)
    checkpoints.close()
    return host_params(state), about["seconds"], done


def _diverged(step: int, what: str, checkpoints: Checkpoints) -> Diverged:
    return Diverged(
        f"stopped at step {step}: {what}. The last good checkpoint is that of step {max(checkpoints.steps(), default=0)}; "
        "lower --config.learning_rate or set --config.clip_norm, and start in a new workdir"
    )


def _overflows(step: int, skipped: int, scale: float, checkpoints: Checkpoints) -> Diverged:
    return Diverged(
        f"stopped at step {step}: float16 overflowed in {skipped} steps in a row, the loss scaled by {scale:g} now. The "
        f"model's activations leave float16's range; set --config.dtype=bfloat16 (or float32), and start in a new workdir. The "
        f"last good checkpoint is that of step {max(checkpoints.steps(), default=0)}"
    )


def _same_data(was: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    if was["data"] != now["data"]:
        raise UserError(
            f"the training text has changed since {folder} began: it was {was['texts']} texts and is now {now['texts']}"
            f"{' (of other content or order)' if was['texts'] == now['texts'] else ''}. Bring the old text back, or choose a new --workdir"
        )
    if was["steps"] != now["steps"]:
        raise UserError(
            f"{folder} began as a run of {was['steps']} steps and this config asks for {now['steps']}; choose a new --workdir"
        )
