"""Several steps in one call of the compiled program: the numbers of single ones, the same after a stop, and which steps may share a call."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest
from simtde_setting import config, random_tokens, small_teacher, start

from jdistill.core import sharding
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.texts import text_batches
from jdistill.methods import simtde
from jdistill.train.calls import calls
from jdistill.train.dataset import Data
from jdistill.train.loop import train
from jdistill.train.watch import Diverged

TEXTS, STEPS, CHECKPOINT_EVERY = 200, 13, 6


def run(folder: Path, steps_per_call: int, stop: bool = False, **changes: Any) -> np.ndarray:
    """All parameters as one vector, after STEPS steps or, with `stop`, at the first checkpoint."""
    keys = {
        "student.layers": 1,
        "adam_eps": 1e-4,
        "max_steps": STEPS,
        "batch_size": 8,
        "steps_per_call": steps_per_call,
    }
    cfg = config("", **keys | {"checkpoint_every": CHECKPOINT_EVERY, "log_every": 5} | changes)
    tokens = random_tokens(TEXTS)
    of_texts = start(small_teacher(), tokens)
    method, corpus = simtde.build(cfg, of_texts), Corpus([str(i) for i in range(TEXTS)], [], 0)
    data = text_batches(cfg, corpus, tokens, of_texts.embeddings, 0, packed=True)
    folder.mkdir(parents=True, exist_ok=True)
    rising = count(0 if stop else 1)  # scores, so that the best checkpoint is the last
    give_up = (lambda step, score, last=False: True) if stop else None
    params, _, steps, *_ = train(cfg, method, data, folder, lambda _: {"score": float(next(rising))}, give_up)
    assert steps == (CHECKPOINT_EVERY if stop else STEPS)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def test_the_numbers_are_those_of_single_steps_and_the_same_after_a_stop(tmp_path: Path) -> None:
    single, several = run(tmp_path / "single", 1), run(tmp_path / "several", 4)
    assert np.linalg.norm(several - single) < 1e-5 * np.linalg.norm(single)
    lines = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").open()] for name in ("single", "several")
    ]
    of_single, of_several = ([line["step"] for line in found if "loss" in line] for found in lines)
    # An interval ends with the call that comes to its end, and the last with the last step.
    assert of_single == [5, 10, 13] and of_several == [5, 12, 13]
    scored = [[line["step"] for line in found if "dev/score" in line] for found in lines]
    assert scored[0] == scored[1] == [6, 12, 13]
    run(tmp_path / "stopped", 4, stop=True)
    np.testing.assert_array_equal(run(tmp_path / "stopped", 4), several)


def test_a_loss_that_is_not_finite_is_that_of_its_step(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="stopped at step 2: the loss is not finite"):
        run(tmp_path / "diverged", 4, learning_rate=1e30, warmup=0, clip_norm=0.0)


def test_parameters_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="stopped at step 1: the parameters are not finite"):
        run(tmp_path, 4, learning_rate=1e30, warmup=0, clip_norm=0.0, checkpoint_every=1)
    assert not list((tmp_path / "checkpoints").glob("[0-9]*"))


def test_steps_of_one_shape_between_checkpoints_share_a_call() -> None:
    widths = [8] * 7 + [16] + [8] * 8
    batches = SimpleNamespace(at=lambda step: (widths[step], np.arange(8)), groups=None)
    data = Data(cast(Any, batches), lambda step, width, rows: {"step": np.full(len(rows), step)}, "x", "texts")
    found = list(calls(data, 0, 15, 2, 5, sharding.global_mesh()))
    # After step 4 a checkpoint is due; step 7 is of another width; one step is left at the end.
    assert [call.steps for call in found] == [2, 2, 1, 1, 1, 1, 2, 2, 2, 1]
    read = [batch["step"] for call in found for batch in (call.batch if call.steps > 1 else (call.batch,))]
    assert [int(step[0]) for step in read] == list(range(15))
    assert [call.steps for call in calls(data, 6, 15, 2, 5, sharding.global_mesh())] == [1, 1, 2, 2, 2, 1]
    # Of one width and two files, whose rows may have arrays of other shapes: every third step is the second's.
    batches.groups, batches.at = np.array([0, 1]), lambda step: (8, np.full(8, int(step % 3 == 2)))
    assert [call.steps for call in calls(data, 0, 8, 2, 50, sharding.global_mesh())] == [2, 1, 1, 1, 1, 2]
