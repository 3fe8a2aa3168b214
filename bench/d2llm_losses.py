"""What each of D2LLM's losses brings, in minutes: the interaction module alone is trained, on vectors that stay as they start.

    python bench/d2llm_losses.py --run runs/d2llm [--held_out 0.2] [--epochs 4] [--seeds 0] [--rows "as it is" "alpha=5" "delta=3,beta=0" …]

The candidates, the judge's scores and the losses are those of RUN, a run of configs/d2llm.py whose scores are there. The vectors are those
of the start, made once, so that a row takes a minute. A row changes keys of cfg.loss, with commas between them, or cfg.iem_size:
"iem_size=2304"; "as it is": none. A share of RUN's training queries is drawn and held out (their passages may still be others' negatives); its
dev and test pairs are not used. Prints the average precision on the held-out queries' labelled pairs after the last epoch, mean over seeds. Adds to
bench/results/d2llm_losses.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import jax
import numpy as np
import optax
from ml_collections import ConfigDict
from record import command_line, keep_rows, shown_run
from untrained import config_of

from configs import d2llm
from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.progress import setup_logging
from jdistill.data.batching.batches import Batches
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.pair_labels import average_precision
from jdistill.feeds.candidates import CandidateFeed
from jdistill.feeds.judged import JudgedSet
from jdistill.feeds.stage import Stage
from jdistill.models.interaction import BRANCHES, interaction_of
from jdistill.run.stages import (
    Run,
    open_stage,
    prepare,
    stages_of,
)
from jdistill.train.dataset import Data
from jdistill.train.method import Method
from jdistill.train.optimizer import make_optimizer

ROWS = ("as it is", "alpha=0", "beta=0", "alpha=0,beta=0", "imitate=false", "delta=3", "random_negatives=none")


@dataclass(frozen=True)
class Fixed:
    """The rows of one file with the vectors of their texts [N, T, D], and its labelled pairs by their vectors."""

    one: JudgedSet
    trained: int  # so many rows, the first of a drawn order, are trained on
    batch: dict[str, np.ndarray]
    pairs: tuple[np.ndarray, np.ndarray]  # [M, D] each
    labels: np.ndarray


def fixed_vectors(run: Run, method: Method, data: Data, held_out: float) -> list[Fixed]:
    """Every row of every file, read once by the student as it starts."""
    batches, found = data.batches, []
    represent = jax.jit(lambda params, frozen, batch: method.represent(params, frozen, batch, None))
    student = method.trained(method.params)
    feed = run.feeds[-1]
    assert isinstance(feed, CandidateFeed) and isinstance(batches, Batches)
    for group, one in enumerate(feed.judged_pairs.sets):
        members = np.flatnonzero(batches.group_of == group)
        by_width = members[np.argsort(batches.bucket_of[members], kind="stable")]
        kept: dict[str, list[np.ndarray]] = {}
        for start in range(0, len(members), batches.batch_size):
            rows = by_width[start : start + batches.batch_size]
            filled = np.resize(rows, batches.batch_size)  # as many in each call, so that few shapes are compiled
            width = batches.widths[int(batches.bucket_of[filled].max())]
            batch = data.rows_of(0, width, filled)
            vectors = represent(method.params, method.frozen, batch)["vectors"]
            for name, value in {"vectors": vectors, **batch}.items():
                if name not in ("ids", "segments", "positions"):
                    kept.setdefault(name, []).append(np.asarray(value)[: len(rows)])
        trained = round(len(members) * (1 - held_out))
        # Drawn, since the file's order tells kinds of queries apart: those without a positive stand behind the others.
        drawn = np.random.default_rng(0).permutation(len(members))
        # Queries that are no candidates are nowhere trained on; as large a share of them.
        known = set(one.candidates.queries)
        rest = [query for query in dict.fromkeys(one.train.queries) if query not in known]
        rest = np.random.default_rng(1).permutation(rest)[: round(len(rest) * held_out)].tolist()
        unseen = {*(one.candidates.queries[i] for i in drawn[trained:]), *rest}
        of = [i for i, query in enumerate(one.train.queries) if query in unseen]
        sides = []
        for texts, role in ((one.train.queries, "query"), (one.train.passages, "document")):
            sides.append(student.encode([texts[i] for i in of], prompt=student.prompt_for(role)))
        places = np.argsort(by_width)[drawn]  # of the members in the drawn order
        batch = {name: np.concatenate(parts)[places] for name, parts in kept.items()}
        found.append(Fixed(one, trained, batch, (sides[0], sides[1]), one.train.labels[of]))
    return found


def train_module(method: Method, cfg: ConfigDict, files: list[Fixed], seed: int) -> dict[str, Any]:
    """The interaction module after cfg.epochs over the rows, batches of one file each."""
    params = dict(method.params)
    cfg = cfg.copy_and_resolve_references()
    cfg.dtype = "float32"  # of the steps: float16 would have its optimiser expect a scaled loss
    sizes = [file.trained for file in files]
    first = np.cumsum([0, *sizes])  # row of each file's first among all
    # The vectors are made, so that texts have no lengths to be bucketed by.
    batches = Batches(
        np.ones(first[-1], int), cfg.batch_size, (1,), seed, groups=np.repeat(np.arange(len(files)), sizes)
    )
    steps = int(cfg.epochs * batches.steps_per_epoch)
    optimizer = make_optimizer(cfg, steps)
    head = jax.tree.map(np.asarray, params.pop("iem"))
    state = optimizer.init(head)

    @jax.jit
    def step(head: Any, state: Any, batch: Any) -> tuple[Any, Any]:
        vectors = {"vectors": batch["vectors"]}
        gradient = jax.grad(lambda head: method.objective(params | {"iem": head}, method.frozen, vectors, batch)[0])(
            head
        )
        updates, state = optimizer.update(gradient, state, head)
        return optax.apply_updates(head, updates), state

    for at in range(steps):
        _, rows = batches.at(at)
        group = int(batches.group_of[rows[0]])
        batch = {name: value[rows - first[group]] for name, value in files[group].batch.items()}
        head, state = step(head, state, batch)
    return jax.device_get(head)


def changed(cfg: ConfigDict, row: str) -> ConfigDict:
    """The config with a row's keys. Raises ValueError for a row that names none of them."""
    cfg = cfg.copy_and_resolve_references()
    for part in row.split(",") if row != "as it is" else []:
        name, _, value = part.partition("=")
        block = cfg if name == "iem_size" else cfg.loss
        if name not in block or not value:
            raise ValueError(f"row {row!r}: {name!r} is no key of cfg.loss with a value")
        block[name] = json.loads(value) if isinstance(block[name], bool) else type(block[name])(value)
    return cfg


def untuned_config(folder: Path, epochs: float) -> ConfigDict:
    """A run's config, with its tuned judge, as a config that tunes none, of its labelled queries alone: what is held out has labels."""
    cfg = config_of(folder, d2llm.get_config())
    cfg.unlabelled_symmetric = cfg.unlabelled_asymmetric = ""
    if cfg.tune.epochs or cfg.tune.max_steps:
        cfg.judge.adapter, cfg.tune.epochs, cfg.tune.max_steps = str(folder / "tune" / "adapter"), 0.0, 0
    cfg.epochs = epochs
    return cfg


def opened(run: Run, stage: Stage, first: Method, iem_size: int) -> Method:
    """A row's method, at the start of the first method, of whose size it mostly is; the texts are read for another size alone."""
    if stage.cfg.iem_size != iem_size:
        return open_stage(stage, run.feeds[-1], run.shared.start, run.is_teacher)[0]
    cfg = stage.cfg.copy_and_resolve_references()
    cfg.heads_start = "random"  # which reads no text, and is replaced
    method, _ = open_stage(replace(stage, cfg=cfg), run.feeds[-1], run.shared.start, run.is_teacher)
    return replace(method, params=first.params)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--held_out", type=float, default=0.2, help="share of the training queries")
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    flags = parser.parse_args()
    keep_compiled_programs()
    setup_logging()
    if not 0 < flags.held_out < 1:
        parser.error(f"--held_out {flags.held_out} is no share between 0 and 1")
    cfg = untuned_config(flags.run, flags.epochs)
    if cfg.interaction == "cosine":
        parser.error(f"{flags.run} has no interaction module to train")
    stages = {row: stages_of(changed(cfg, row))[-1] for row in flags.rows}  # all rows' keys before the first trains
    run = prepare(cfg)
    every = changed(cfg, "as it is")
    every.loss.imitate, every.loss.gamma = True, 1.0  # batches with all that a row may read
    method, data = open_stage(replace(run.stages[-1], cfg=every), run.feeds[-1], run.shared.start, run.is_teacher)
    files = fixed_vectors(run, method, data, flags.held_out)
    print(f"\n| loss | {' | '.join(f'{file.one.name}, {len(file.labels)} pairs' for file in files)} |")
    print(f"|{' --- |' * (1 + len(files))}")

    def line(name: str, heads: dict[int | None, Any]) -> None:  # of each seed
        cells, rows = [], []
        for file in files:
            symmetric, found = file.one.branch == BRANCHES[0], []
            for head in heads.values():
                scorer = PairScorer(method.student, head, interaction_of(cfg))
                z = scorer.rescore(file.pairs[0], file.pairs[1][:, None], symmetric)[:, 0]
                found.append(average_precision(z, file.labels))
            cells.append(f"{np.mean(found):.2f}" + (f" ± {np.std(found, ddof=1):.2f}" if len(found) > 1 else ""))
            prior = 100 * float(np.mean(file.labels))
            rows += [
                {"loss": name, "file": file.one.name, "seed": seed, "pairs": len(file.labels), "prior": prior, "ap": ap}
                for seed, ap in zip(heads, found, strict=True)
            ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        about = {"run": shown_run(flags.run), "held_out": flags.held_out, "epochs": flags.epochs}
        keep_rows("d2llm_losses", command_line(), rows, ("loss", "file", "seed"), **about)

    print(f"| prior | {' | '.join(f'{100 * np.mean(file.labels):.2f}' for file in files)} |", flush=True)
    line("before", {None: method.params["iem"]})
    for row, stage in stages.items():
        other = opened(run, stage, method, cfg.iem_size)
        line(row, {seed: train_module(other, stage.cfg, files, seed) for seed in flags.seeds})


if __name__ == "__main__":
    main()
