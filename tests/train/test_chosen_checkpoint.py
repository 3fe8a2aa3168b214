"""Which checkpoint a run exports: the best by its dev score or, by `checkpoint`, the last."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import make_encoder, save_encoder
from simtde_setting import config, random_tokens, start

from jdistill.core.errors import UserError
from jdistill.export.trained import load_student
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.texts import text_batches
from jdistill.methods import simtde
from jdistill.train.checkpoint import Checkpoints
from jdistill.train.loop import train

TEXTS, STEPS, EVERY = 40, 6, 2


def run(workdir: Path, checkpoint: str, scores: tuple[float, ...] = (3.0, 2.0, 1.0)) -> list[np.ndarray]:
    """The parameters that a stage ends with, whose dev scores fall from its first checkpoint on."""
    keys = {
        "student.layers": 1,
        "max_steps": STEPS,
        "batch_size": 8,
        "checkpoint_every": EVERY,
        "checkpoint": checkpoint,
    }
    cfg = config("", **keys)
    tokens = random_tokens(TEXTS)
    of_texts = start(make_encoder(), tokens)
    method, corpus = simtde.build(cfg, of_texts), Corpus([str(i) for i in range(TEXTS)], [], 0)
    data = text_batches(cfg, corpus, tokens, of_texts.embeddings, 0, packed=True)
    folder = workdir / "distil"
    folder.mkdir(parents=True)
    save_encoder(method.student, folder / "student")
    (workdir / "config.json").write_text(json.dumps({"checkpoint": checkpoint} if checkpoint != "best" else {}))
    falling = iter(scores)
    params, *_ = train(cfg, method, data, folder, lambda _: {"score": next(falling)})
    return jax.tree.leaves(params["student"])


def at(workdir: Path, step: int) -> list[np.ndarray]:
    checkpoints = Checkpoints(workdir / "distil" / "checkpoints", 3)
    _, state, _ = checkpoints.restore(None, [step])
    checkpoints.close()
    return jax.tree.leaves(state["params"]["student"])


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("checkpoint", "step"), [("best", EVERY), ("last", STEPS)])
def test_a_run_ends_with_that_checkpoint(tmp_path: Path, checkpoint: str, step: int) -> None:
    params = run(tmp_path, checkpoint)
    assert same(params, at(tmp_path, step)) and not same(params, at(tmp_path, EVERY + STEPS - step))
    assert same(jax.tree.leaves(load_student(tmp_path).weights()), params)  # as jdistill.export reads it later
    another = load_student(tmp_path, step=EVERY + STEPS - step)
    assert same(jax.tree.leaves(another.weights()), at(tmp_path, EVERY + STEPS - step))


def test_a_run_that_fails_writes_nothing_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def slowly(old: os.PathLike[str] | str, new: os.PathLike[str] | str) -> None:
        if Path(new).parent.name == "checkpoints":  # Orbax's thread, at the end of a save
            time.sleep(0.5)
        rename(old, new)

    monkeypatch.setattr(os, "rename", slowly)
    with pytest.raises(StopIteration):
        run(tmp_path, "last", scores=(3.0,))
    assert [path.name for path in (tmp_path / "distil" / "checkpoints").iterdir()] == [str(EVERY)]


def test_a_config_that_names_no_such_checkpoint_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "last")
    (tmp_path / "config.json").write_text('{"checkpoint": "newest"}')
    with pytest.raises(UserError, match="config.json.*checkpoint.*newest"):
        load_student(tmp_path)
