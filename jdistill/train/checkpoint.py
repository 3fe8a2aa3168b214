"""Checkpoints of a training stage with Orbax; nothing else in jdistill knows Orbax.

A checkpoint holds the train state (arrays) and a small JSON: what run it belongs to, its dev score, and digests of the arrays and of
itself. The last N and the best are kept, as many as of a run that was never interrupted. Saving is asynchronous and atomic: a
checkpoint whose writing was cut off is never taken for whole, nor one of which a byte has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from jdistill.core.errors import UserError, first_line, is_of_machine
from jdistill.core.progress import log
from jdistill.core.types import Tree
from jdistill.train.sealed import (
    DIGEST_KEY,
    SEAL_KEY,
    check_sealed,
    kept_score,
    mend_metrics,
    read_description,
    seal_of,
    state_digest,
)

BEST_CHECKPOINT, LAST_CHECKPOINT = "best", "last"  # which checkpoint a run exports, by its config's `checkpoint`


def steps_in(folder: Path) -> list[int]:
    """The steps whose checkpoints lie in a folder whole, in order; none where there is no folder."""
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())


class Checkpoints:
    """The checkpoints of one stage, in `folder`, numbered by step."""

    def __init__(self, folder: Path, keep_last: int, every: int = 1):
        """keep_last: how many of the newest stay, beside the best. every: steps between two that an uninterrupted run saves."""
        self.folder, self.keep = folder, _Keep(keep_last, every)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self.keep,
            create=True,
            enable_async_checkpointing=True,
            best_fn=lambda metrics: metrics["score"],
            best_mode="max",
        )
        handlers = {"state": ocp.StandardCheckpointHandler(), "about": ocp.JsonCheckpointHandler()}
        mend_metrics(folder)
        self.manager = ocp.CheckpointManager(folder.absolute(), options=options, item_handlers=handlers)
        self._scores: dict[int, float | None] = {step: kept_score(folder / str(step)) for step in self.steps()}

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in order, one that is being written too."""
        return sorted(self.manager.all_steps())

    def on_disk(self) -> list[int]:
        """The steps whose checkpoints are there whole: steps() counts one that is being written."""
        return steps_in(self.folder)

    def save(self, step: int, state: Tree, about: dict[str, Any], score: float | None) -> None:
        """Starts saving.

        Args:
          step: its number.
          state: a tree of arrays.
          about: what a JSON file can hold; score and digests are added.
          score: the dev score, higher is better; None: there is none.

        Raises: UserError with an error of an earlier save, such as a full disk.
        """
        # One copy, the first device's: Orbax would take a slice of each device's and process's, which may differ in their last bits.
        state = jax.tree.map(lambda x: np.array(x) if x.is_fully_replicated else x, state)
        about = about | {"score": score if score is None else float(score), DIGEST_KEY: state_digest(state)}
        try:
            self.manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(state), about=ocp.args.JsonSave(about | {SEAL_KEY: seal_of(about)})
                ),
                metrics=None if score is None else {"score": float(score)},
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise self._failed(step, error) from error
        self._scores[step] = about["score"]

    def wait(self) -> None:
        """Blocks until what was saved is on disk. Raises UserError where it could not be written."""
        try:
            self.manager.wait_until_finished()
        except Exception as error:  # Orbax hands on whatever its writing threads raised
            raise self._failed(None, error) from error

    def _failed(self, step: int | None, error: Exception) -> UserError:
        which = "a checkpoint" if step is None else f"the checkpoint of step {step}"
        return UserError(
            f"{which} could not be written to {self.folder} ({first_line(error)[:300]}). Is the disk full? The earlier checkpoints "
            f"{self.on_disk()} are whole; make room and run the same command again"
        )

    def restore(self, like: Tree, steps: list[int] | None = None) -> tuple[int, Tree, dict[str, Any]]:
        """(step, state, about) of the first of `steps` that can be read; a damaged checkpoint is told and the next one is read.

        Args:
          like: a tree of jax.ShapeDtypeStruct with shardings; None takes the shapes from the checkpoint and puts all on this process's first
            device, whatever devices it was written from.
          steps: in the order of preference; None: all, the newest first.

        Raises: UserError where none can be read.
        """
        wanted = self.steps()[::-1] if steps is None else steps
        damaged: Exception = ValueError("there is none")
        for i, step in enumerate(wanted):
            try:
                target = self._on_one_device(step) if like is None else like
                saved = self.manager.restore(
                    step, args=ocp.args.Composite(state=ocp.args.StandardRestore(target), about=ocp.args.JsonRestore())
                )
                check_sealed(saved.state, saved.about)
                return step, saved.state, saved.about
            except Exception as error:  # what a truncated file raises depends on where it was cut
                if is_of_machine(error):
                    raise UserError(
                        f"{self.folder / str(step)} cannot be read as this machine is ({first_line(error)[:300]}), and may be whole; give it "
                        "what it lacks, and run the same command again; where the disk has lost it for good, delete that folder first"
                    ) from error
                further = f"; taking that of step {wanted[i + 1]}" if i + 1 < len(wanted) else ""
                log.warning(
                    "checkpoint %s cannot be read (%s)%s", self.folder / str(step), first_line(error)[:300], further
                )
                damaged = error
        raise UserError(
            f"no checkpoint in {self.folder} can be read (steps {wanted}: {first_line(damaged)[:300]}). They are damaged or of another "
            "version; delete the folder to start the stage again"
        ) from damaged

    def _on_one_device(self, step: int) -> Tree:
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        tree = self.manager.item_metadata(step)["state"].tree
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=device), tree)

    def drop_after(self, step: int) -> None:
        """Deletes the checkpoints after `step`: damaged ones that training is about to write again."""
        for later in [s for s in self.steps() if s > step]:
            self.manager.delete(later)

    def drop_old(self, taken: int) -> None:
        """Deletes all but those to keep and `taken`: a kill may come between a save and its deletions, or a deletion fail.

        Raises: UserError where the disk refuses.
        """
        kept = self.keep.of({step: self._scores.get(step) for step in self.steps()}) | {taken}
        try:
            for step in [s for s in self.steps() if s not in kept]:
                self.manager.delete(step)
        except OSError as error:
            raise UserError(
                f"an old checkpoint cannot be deleted from {self.folder} ({error}); run the same command again"
            ) from error

    def best_step(self) -> int | None:
        """The step with the highest dev score, or None where no checkpoint has one."""
        return next(iter(self.best_first()), None)

    def best_score(self) -> float | None:
        """The highest dev score, or None where no checkpoint has one."""
        best = self.best_step()
        return None if best is None else self._scores[best]

    def best_first(self) -> list[int]:
        """The steps that have a dev score, the highest first; of equal ones the newest."""
        scored = [(score, step) for step in self.steps() if (score := self._scores.get(step)) is not None]
        return [step for _, step in sorted(scored, reverse=True)]

    def newest_about(self) -> dict[str, Any] | None:
        """The newest checkpoint's description, without its arrays; None where it is damaged or of an older version."""
        return read_description(self.folder / str(self.steps()[-1]))

    def close(self) -> None:
        """Waits for the last save, and ends Orbax's threads."""
        self.wait()
        self.manager.close()


@dataclass(frozen=True)
class _Keep:
    """Which checkpoints stay: those that would, had the run never been interrupted, and the newest."""

    last: int
    every: int

    def of(self, scores: Mapping[int, float | None]) -> set[int]:
        """scores: by step, None where a checkpoint has none. Of equal scores the newest is the best."""
        regular = [step for step in sorted(scores) if step % self.every == 0 or step == max(scores)]
        best = max(((score, step) for step, score in scores.items() if score is not None), default=None)
        return {*regular[-self.last :], *([best[1]] if best else [])}

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Orbax's side of it."""
        kept = self.of({info.step: info.metrics["score"] if info.metrics else None for info in checkpoints})
        return [info.step in kept for info in checkpoints]


def abstract(state: Tree) -> Tree:
    """Shapes, types and shardings of a tree of arrays: what `restore` fills."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
