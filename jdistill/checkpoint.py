"""Checkpoints of a training stage with Orbax; nothing else in jdistill knows Orbax.

A checkpoint holds the train state (arrays) and a small JSON (what run it belongs to and its dev score). The last N
and the best are kept. Saving is asynchronous and atomic: a checkpoint whose writing was cut off is never taken for
whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy as preservation

from jdistill.errors import UserError
from jdistill.progress import log

Tree = Any


class Checkpoints:
    """The checkpoints of one stage, in `folder`, numbered by step."""

    def __init__(self, folder: Path, keep_last: int):
        self.folder = folder
        keep = [
            preservation.LatestN(n=keep_last),
            preservation.BestN(
                get_metric_fn=lambda metrics: metrics["score"], n=1, keep_checkpoints_without_metrics=False
            ),
        ]
        options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation.AnyPreservationPolicy(keep),
            create=True,
            enable_async_checkpointing=True,
            best_fn=lambda metrics: metrics["score"],
            best_mode="max",
        )
        handlers = {"state": ocp.StandardCheckpointHandler(), "about": ocp.JsonCheckpointHandler()}
        self.manager = ocp.CheckpointManager(folder.absolute(), options=options, item_handlers=handlers)

    def steps(self) -> list[int]:
        return sorted(self.manager.all_steps())

    def save(self, step: int, state: Tree, about: dict[str, Any], score: float | None) -> None:
        """Starts saving; an error of an earlier save, such as a full disk, is raised here as UserError."""
        try:
            metrics = None if score is None else {"score": float(score)}
            self.manager.save(
                step,
                args=ocp.args.Composite(state=ocp.args.StandardSave(state), about=ocp.args.JsonSave(about)),
                metrics=metrics,
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise self._failed(step, error) from error

    def wait(self) -> None:
        """Blocks until what was saved is on disk."""
        try:
            self.manager.wait_until_finished()
        except Exception as error:  # Orbax hands on whatever its writing threads raised
            raise self._failed(None, error) from error

    def _failed(self, step: int | None, error: Exception) -> UserError:
        which = "a checkpoint" if step is None else f"the checkpoint of step {step}"
        return UserError(
            f"{which} could not be written to {self.folder} ({_first_line(error)}). Is the disk full? The earlier checkpoints "
            f"{self.steps()} are whole; make room and run the same command again"
        )

    def restore(self, like: Tree, step: int | None = None) -> tuple[int, Tree, dict[str, Any]]:
        """(step, state, about) of the newest readable checkpoint, or of `step`.

        like: a tree of jax.ShapeDtypeStruct with shardings; None takes the shapes from the checkpoint and puts all on this
        process's first device, whatever devices it was written from. A damaged newest checkpoint is set aside with a warning
        and the one before it is read; UserError when none can be.
        """
        steps = self.steps() if step is None else [step]
        for candidate in reversed(steps):
            try:
                target = self._on_one_device(candidate) if like is None else like
                restored = self.manager.restore(
                    candidate,
                    args=ocp.args.Composite(state=ocp.args.StandardRestore(target), about=ocp.args.JsonRestore()),
                )
                return candidate, restored.state, restored.about
            except Exception as error:  # what a truncated file raises depends on where it was cut
                log.warning(
                    "checkpoint %s cannot be read (%s)%s",
                    self.folder / str(candidate),
                    _first_line(error),
                    "; going back to the one before" if candidate != steps[0] else "",
                )
                damaged = error
        raise UserError(
            f"no checkpoint in {self.folder} can be read (steps {steps}: {_first_line(damaged)}). They are damaged or of another "
            "version; delete the folder to start the stage again"
        ) from damaged

    def _on_one_device(self, step: int) -> Tree:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        found = self.manager.item_metadata(step)["state"].tree
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), found)

    def drop_after(self, step: int) -> None:
        """Deletes the checkpoints after `step`: damaged ones that training is about to write again."""
        for later in [s for s in self.steps() if s > step]:
            self.manager.delete(later)

    def best_step(self) -> int | None:
        """The step with the highest dev score, or None where no checkpoint has one."""
        return self.manager.best_step()

    def close(self) -> None:
        self.wait()
        self.manager.close()


def abstract(state: Tree) -> Tree:
    """Shapes, types and shardings of a tree of arrays: what `restore` fills."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
