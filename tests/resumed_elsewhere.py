"""Run by test_devices_come_and_go.py in processes of their own: runs that began on some devices and go on on others.

Usage: python resumed_elsewhere.py FOLDER: with eight devices, begins a run on 1, 2, 4 and 8 of them (FOLDER/begun-COUNT), resumes copies
on others and writes FOLDER/FROM-TO.npz, and FOLDER/whole.npz of a run that was never stopped.
python resumed_elsewhere.py FOLDER COORDINATOR NUM PROCESS_ID: all processes together begin FOLDER/begun-two, and resume FOLDER/for-two,
whose end is FOLDER/1-two.npz.
"""

from __future__ import annotations

import shutil
import sys
from itertools import count
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from jdistill.core import sharding  # noqa: E402
from jdistill.core.launchers import connect  # noqa: E402

if len(sys.argv) > 2:
    connect(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

import jax  # noqa: E402
import numpy as np  # noqa: E402
from simtde_setting import RESUMED_ON, config, random_tokens, small_teacher, start  # noqa: E402

from jdistill.feeds.corpus import Corpus  # noqa: E402
from jdistill.feeds.texts import text_batches  # noqa: E402
from jdistill.methods import simtde  # noqa: E402
from jdistill.train.loop import train  # noqa: E402

TEXTS, STEPS, STOPPED = 300, 8, 4


def run(folder: Path, stop: bool, devices: int = 0) -> Any:
    """Trains in a folder from where it stands, to its end or, with `stop`, to its first checkpoint. Returns the parameters on the host."""
    # AdamW's eps lies far above a gradient that is rounding alone, as that of the keys' biases is: it would make a whole step of it.
    keys = {"student.layers": 1, "adam_eps": 1e-4, "max_steps": STEPS, "checkpoint_every": STOPPED, "batch_size": 64}
    cfg, teacher, tokens = config("", **keys), small_teacher(), random_tokens(TEXTS)
    mesh = sharding.mesh_of(jax.devices()[:devices] if devices else jax.devices())
    with sharding.planning(mesh):  # for which texts are packed
        of_texts = start(teacher, tokens)
        method = simtde.build(cfg, of_texts)
        corpus = Corpus([str(i) for i in range(TEXTS)], [], 0)
        data = text_batches(cfg, corpus, tokens, of_texts.embeddings, 0, packed=True)
        assert "place" in data.batch(0)
        folder.mkdir(parents=True, exist_ok=True)
        give_up = (lambda step, score, last=False: True) if stop else None
        rising = count(0 if stop else 1)  # scores, so that the best checkpoint is the last
        params, _, steps, _ = train(cfg, method, data, folder, lambda _: {"score": float(next(rising))}, give_up)
    assert steps == (STOPPED if stop else STEPS)
    return params


def save(path: Path, params: Any) -> None:
    if sharding.is_first_process():
        np.savez(path, **{f"{i:03d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(params))})


def main() -> None:
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        run(out / "begun-two", stop=True)
        save(out / "1-two.npz", run(out / "for-two", stop=False))
        sharding.barrier("end")
        return
    if (out / "begun-two").exists():  # of two processes, which came before
        save(out / "two-1.npz", run(out / "begun-two", stop=False, devices=1))
        return
    save(out / "whole.npz", run(out / "whole", stop=False, devices=1))
    for devices in (1, 2, 4, 8):
        run(out / f"begun-{devices}", stop=True, devices=devices)
    for before, after in RESUMED_ON:
        folder = out / f"{before}-{after}"
        shutil.copytree(out / f"begun-{before}", folder)
        save(out / f"{before}-{after}.npz", run(folder, stop=False, devices=after))
    shutil.copytree(out / "begun-1", out / "for-two")


if __name__ == "__main__":
    main()
