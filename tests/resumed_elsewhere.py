"""Run by test_devices_come_and_go.py, most of it in processes of their own: a run that goes on on other devices after each checkpoint.

Usage: python resumed_elsewhere.py FOLDER, with eight devices: a run on one of them, whose parameters at each checkpoint are
FOLDER/whole-STEP.npz, and one on DEVICES in turn (FOLDER/FROM-TO.npz), whose first part is FOLDER/for-two.
python resumed_elsewhere.py FOLDER COORDINATOR NUM PROCESS_ID: all processes together begin FOLDER/begun-two, and resume FOLDER/for-two,
whose next checkpoint is FOLDER/1-two.npz.
"""

from __future__ import annotations

import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from jdistill.core import sharding  # noqa: E402
from jdistill.core.launchers import connect  # noqa: E402

if __name__ == "__main__" and len(sys.argv) > 2:
    connect(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

import jax  # noqa: E402
import numpy as np  # noqa: E402
from simtde_setting import config, random_tokens, small_teacher, start  # noqa: E402

from jdistill.feeds.corpus import Corpus  # noqa: E402
from jdistill.feeds.texts import text_batches  # noqa: E402
from jdistill.methods import simtde  # noqa: E402
from jdistill.train.loop import train  # noqa: E402

TEXTS, EVERY = 300, 4  # every so many steps a checkpoint
DEVICES = (1, 8, 2, 4, 1)  # how many the run has up to its first checkpoint, to its second, …
STEPS = EVERY * len(DEVICES)


def run_to(step: int, folder: Path, devices: int = 0) -> list[Any]:
    """Trains in a folder from where it stands to the checkpoint of a step. Returns the parameters at each checkpoint, on the host."""
    # AdamW's eps lies far above a gradient that is rounding alone, as that of the keys' biases is: it would make a whole step of it.
    keys = {"student.layers": 1, "adam_eps": 1e-4, "max_steps": STEPS, "checkpoint_every": EVERY, "batch_size": 64}
    cfg, teacher, tokens = config("", **keys), small_teacher(), random_tokens(TEXTS)
    mesh = sharding.mesh_of(jax.devices()[:devices] if devices else jax.devices())
    scored: list[Any] = []

    def score(params: Any) -> dict[str, float]:
        scored.append(params)
        return {"score": 0.0}  # of equal scores the newest checkpoint's is the best

    with sharding.planning(mesh):  # for which texts are packed
        of_texts = start(teacher, tokens)
        method = simtde.build(cfg, of_texts)
        corpus = Corpus([str(i) for i in range(TEXTS)], [], 0)
        data = text_batches(cfg, corpus, tokens, of_texts.embeddings, 0, packed=True)
        assert "place" in data.batch(0)
        folder.mkdir(parents=True, exist_ok=True)
        steps = train(cfg, method, data, folder, score, lambda done, _, last=False: done == step)[2]
    assert steps == step
    return scored


def save(path: Path, params: Any) -> None:
    if sharding.is_first_process():
        np.savez(path, **{f"{i:03d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(params))})


def go_on(folder: Path, step: int, path: Path, devices: int = 0) -> None:
    """Resumes a run whose newest checkpoint is the one before that of `step`, and saves its parameters there."""
    (params,) = run_to(step, folder, devices)  # a run that began anew would have come to several checkpoints
    save(path, params)


def main() -> None:
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        run_to(EVERY, out / "begun-two")
        go_on(out / "for-two", 2 * EVERY, out / "1-two.npz")
        sharding.barrier("end")
        return
    for i, params in enumerate(run_to(STEPS, out / "whole", DEVICES[0]), 1):
        save(out / f"whole-{i * EVERY}.npz", params)
    run_to(EVERY, out / "chain", DEVICES[0])
    shutil.copytree(out / "chain", out / "for-two")
    for i, (before, after) in enumerate(pairwise(DEVICES), 2):
        go_on(out / "chain", i * EVERY, out / f"{before}-{after}.npz", after)


if __name__ == "__main__":
    main()
