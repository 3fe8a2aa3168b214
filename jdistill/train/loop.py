"""THE training loop: steps over a mesh, checkpoints that resume exactly, metrics. There is no second one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from jdistill.core import sharding
from jdistill.core.errors import UserError
from jdistill.core.memory import give_back_freed_memory
from jdistill.core.progress import log
from jdistill.core.stage_keys import key_of_stage
from jdistill.core.stopping import Stopped
from jdistill.core.types import Tree
from jdistill.train.ahead import BatchesAhead
from jdistill.train.calls import Programs, calls
from jdistill.train.checkpoint import LAST_CHECKPOINT, Checkpoints, abstract
from jdistill.train.compiling import compiling, expected_calls
from jdistill.train.dataset import Data
from jdistill.train.early_end import GiveUp, Patience
from jdistill.train.method import Method, TrainedStage
from jdistill.train.metrics import Recorder
from jdistill.train.optimizer import make_optimizer
from jdistill.train.origins import begun_with, check_same_data, check_same_run, devices_over
from jdistill.train.signals import Agreement, Interrupted, catch_signals, stopping_at
from jdistill.train.step import TrainState, configured_step, host_params, init_state, place_frozen
from jdistill.train.watch import SKIPPED_KEY, Watch

# Calls that may be under way before their loss is looked at: keeps the device busy and the stop at a NaN prompt.
LAG = 2


def total_steps(cfg: ConfigDict, steps_per_epoch: int) -> int:
    """The steps of a stage: cfg.max_steps, or, where that is 0, as many as cfg.epochs take."""
    return cfg.max_steps or max(1, math.ceil(cfg.epochs * steps_per_epoch))


def train(
    cfg: ConfigDict,
    method: Method,
    data: Data,
    folder: Path,
    score: Callable[[Tree], dict[str, float]],
    give_up: GiveUp | None = None,
) -> TrainedStage:
    """Trains a stage to its end in `folder`, from its newest checkpoint if there is one.

    Args:
      cfg: the stage's config.
      method: what is trained, and how.
      data: its batches.
      folder: of the stage; checkpoints and metrics are written into it.
      score: parameters -> dev figures; "score" among them, higher is better, decides which checkpoint is best.
      give_up: told "score" of each checkpoint, it may end the training there.

    Raises: Interrupted after a signal (state saved); Diverged for a loss that is not finite; UserError for a full disk, or data that
      changed since the stage began.
    """
    training = _Training(cfg, method, data, folder, score, give_up)
    agreement = Agreement(training.done, cfg.checkpoint_minutes)
    with catch_signals() as caught, training.recorded(caught):
        while not training.is_over():
            training.step(caught)
            if training.passed(cfg.log_every) or training.done == training.steps:
                training.log()
            if training.passed(cfg.checkpoint_every) or training.done == training.steps:
                training.save(with_score=True)
                agreement.saved()
            if agreement.reached(caught, training.done) and training.done < training.steps:
                training.save_position()
                training.checkpoints.wait()
                raise Interrupted(caught, training.done)
            if agreement.save_due(training.done):
                training.save_position()
                agreement.saved()
        training.end()
        if sharding.any_process(bool(caught)):  # in the last step or its scoring: what comes next must not begin
            raise Interrupted(caught, training.done)
    params, checkpoint = training.chosen_params()
    return TrainedStage(params, training.about["seconds"], training.done, checkpoint, training.about["devices"])


class _Training:
    """A stage that is being trained: its compiled step, its state, what it records and what it saves."""

    def __init__(
        self,
        cfg: ConfigDict,
        method: Method,
        data: Data,
        folder: Path,
        score: Callable[[Tree], dict[str, float]],
        give_up: GiveUp | None,
    ):
        """Reads the newest checkpoint and the first batch, and compiles meanwhile. The arguments are those of `train`."""
        self.cfg, self.data, self.folder, self.score, self.give_up = cfg, data, folder, score, give_up
        self.steps, self.given_up = total_steps(cfg, data.batches.steps_per_epoch), False
        self.done = self.before = 0  # steps; before: those before the last call
        self.mesh = sharding.global_mesh()
        optimizer = make_optimizer(cfg, self.steps)
        step = configured_step(cfg, method, optimizer, self.mesh)
        self.state = init_state(method, optimizer, self.mesh, cfg.shard_params)
        self.programs, self.frozen = Programs(step, self.mesh, self.state), place_frozen(cfg, method, self.mesh)
        self.checkpoints = Checkpoints(folder / "checkpoints", cfg.keep_last, cfg.checkpoint_every)
        self.about = begun_with(data, self.steps)
        check_same_data(self.about, folder)
        self.patience = Patience(cfg, self.checkpoints, self.about, folder.name)
        if self.checkpoints.steps():
            self._resume()
        else:
            self._announce()
        self.watch = Watch(self.checkpoints, self.about, key_of_stage(cfg, folder.name, "learning_rate"))
        # The first look asks the teacher for what its cache lacks, which is no part of training's time and rate.
        if not self.is_over():
            coming, at = expected_calls(data, self.done, cfg.steps_per_call, self.mesh), (self.state, self.frozen)
            with compiling(coming, lambda call: self.programs.of(call).lower(*at, call.batch).compile()):
                data.batch(self.done)
        self.recorder = Recorder(cfg, data, folder, self.steps, self.done)
        self.ahead = BatchesAhead(
            calls(data, self.done, self.steps, cfg.steps_per_call, cfg.checkpoint_every, self.mesh), cfg.prefetch
        )
        self.seconds_before, self.started = self.about["seconds"], time.monotonic()
        self.batch_shapes: set[tuple[tuple[int, ...], ...]] = set()

    def _resume(self) -> None:
        """Takes the newest checkpoint that can be read; deletes those after it, which training writes again."""
        if described := self.checkpoints.newest_about():  # another vocabulary has arrays of other shapes
            check_same_run(described, self.about, self.folder)
        layout = abstract(self.state)._asdict()
        del self.state  # the device need not hold it beside the one that is read
        self.done, arrays, saved = self.checkpoints.restore(layout)
        check_same_run(saved, self.about, self.folder)
        self.state = TrainState(**arrays)
        self.checkpoints.drop_after(self.done)
        self.patience.resume(saved)
        # A kill may have come before it was heard.
        if self.give_up and saved.get("score") is not None and not self.is_over():
            self.given_up = self.give_up(self.done, saved["score"])
        self.about |= {"seconds": saved["seconds"], SKIPPED_KEY: saved.get(SKIPPED_KEY, 0)}
        self.about["devices"] = devices_over(saved, not self.is_over())
        log.info("resuming %s at step %d of %d", self.folder.name, self.done, self.steps)

    def _announce(self) -> None:
        log.info(
            "training %s: %d steps of %d %s, %.2f epochs of %d, padding %.1f %%",
            self.folder.name, self.steps, self.cfg.batch_size, self.data.unit,
            self.steps / self.data.batches.steps_per_epoch, len(self.data), 100 * self.data.batches.padding,
        )  # fmt: skip

    @contextmanager
    def recorded(self, caught: Sequence[str]) -> Iterator[None]:
        """Closes the record at the end. caught: signals. Raises UserError where the disk refused what was written meanwhile."""
        try:
            yield
        except Exception as error:
            if sharding.process_count() == 1:  # of several the others may be gone, without whom a save never ends
                with suppress(UserError):
                    self.checkpoints.wait()  # nothing writes or deletes in the folder that the caller has back
            if not isinstance(error, OSError):
                raise
            raise UserError(
                f"{self.folder} cannot be written ({error}). Is the disk full? The checkpoints "
                f"{self.checkpoints.on_disk()} are whole; make room and run the same command again"
            ) from error
        finally:
            with stopping_at(caught):
                self.ahead.close()
            self.recorder.close()

    def is_over(self) -> bool:
        return self.done >= self.steps or self.given_up or self.patience.is_over(self.done)

    def step(self, caught: Sequence[str]) -> None:
        """Starts the next step, or the next steps_per_call, and looks at the metrics of the call LAG calls before; none where a signal was caught
        while the teacher was asked for its batch."""
        self.before, call = self.done, None
        with suppress(Stopped), stopping_at(caught):
            call = self.ahead.take()
        if call is None:
            return
        if (shapes := tuple(np.shape(x) for x in jax.tree.leaves(call.batch))) not in self.batch_shapes:
            self.batch_shapes.add(shapes)
            self.watch.look()  # no step is under way
            give_back_freed_memory()  # the holes that steps of other widths left
        self.state, metrics = self.programs.of(call)(self.state, self.frozen, call.batch)
        self.done += call.steps
        self.watch.add(self.done, metrics, call.steps)
        self.watch.look(LAG)
        self.recorder.advance(self.watch.window, call.steps)

    def passed(self, every: int) -> bool:
        """Whether the last call came to a multiple of so many steps, or went beyond one."""
        return self.done // every > self.before // every

    def log(self) -> None:
        """Writes the metrics since the last time."""
        self.watch.look()
        self.recorder.write_interval(self.done, self.watch.take())

    def save(self, with_score: bool) -> None:
        """Scores the parameters, where asked to, and starts saving. Raises Diverged for a state that is worth nothing."""
        self.watch.look()
        with self.recorder.clock_stopped():
            if self.done == self.steps:
                self.watch.check_trained(self.done)
            self.watch.check_params(self.done, self.state.params)
            figures = sharding.agreed(self.score(host_params(self.state))) if with_score else {}
            if figures:
                self.recorder.write_scores(self.done, figures)
            if with_score:
                self.patience.note(self.done, figures.get("score"))
            if self.give_up and "score" in figures:  # told before it is saved: a kill in between scores the step again
                self.given_up = self.give_up(self.done, figures["score"], last=self.is_over())
            self.about["seconds"] = self.seconds_before + time.monotonic() - self.started
            self.checkpoints.save(self.done, self.state._asdict(), self.about, figures.get("score"))

    def save_position(self) -> None:
        """Saves the step that was done last, without a score, unless it is saved."""
        if self.done not in self.checkpoints.steps():
            self.save(with_score=False)

    def end(self) -> None:
        """Says why the training ended before its last step, if it did, and waits for the last checkpoint."""
        if self.done < self.steps and not self.given_up:
            self.watch.check_trained(self.done)
            log.info("stopped at step %d: no better dev score since step %s", self.done, self.patience.better_at)
        self.checkpoints.wait()

    def chosen_params(self) -> tuple[Tree, int]:
        """The parameters with the best dev score, or without scores or by cfg.checkpoint the last, on the host; and the step of their
        checkpoint. Closes the checkpoints."""
        best, taken = self.checkpoints.best_first(), self.done
        if best and best[0] != self.done and self.cfg.checkpoint == LAST_CHECKPOINT:
            log.info("the last step's parameters are taken; the best dev score is that of step %d", best[0])
        elif best and best[0] != self.done:
            log.info("the best dev score is that of step %d, whose parameters are taken", best[0])
            layout = abstract(self.state)._asdict()
            del self.state
            taken, arrays, _ = self.checkpoints.restore(layout, best)
            self.state = TrainState(**arrays)
        self.checkpoints.drop_old(taken)
        self.checkpoints.close()
        return host_params(self.state), taken
