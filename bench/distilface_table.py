"""DistilFACE on a raw language model: STS by pooler before and after contrastive training, the rate picked on dev pairs.

    python bench/distilface_table.py --start MODEL.gguf --text sentences.txt.gz --senteval SENTEVAL \\
        --dev_pairs sts-dev-clean.csv --workdir runs/distilface-table [--layers 8] [--pooler avg_last4] [--steps 1000] \\
        [--rates 3e-5 1e-4 3e-4] [--rate_steps 100] [--run RUN] [--tuned RUN …] [-- --config.batch_size=64 …]

--run: a finished run of these keys, rate and steps chosen by other means, such as a sweep of more keys than the rate; none is made
then. --tuned: finished runs of configs/ibkd.py:supervised, on labelled triplets, of this run's student and, as controls, of others.
Before: the start's first layers as they are, reading as the student does, as many tokens too, and, where that is both ways,
causally as well. Averages are the paper's, of STS12 to 15 and STS-B. The best untuned is the best of all rows before, of the
paper's 14 poolers and the last token's. Everything resumes. Adds to bench/results/distilface_table.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict
from record import check_settings, command_line, joined, keep_rows, shown
from runs import finished_run

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads


from untrained import untrained_student

import jdistill
from configs import distilface
from jdistill.core.progress import setup_logging
from jdistill.encoder.encoder import Encoder
from jdistill.evals.poolers import EveryPooler, pooler_names
from jdistill.evals.sts import evaluate_sts

CONFIG = "configs/distilface.py:poolers"
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS-B")
Figures = dict[str, dict[str, float]]  # pooler -> task -> Spearman x 100


def by_pooler(model: Encoder, senteval: Path, kept: Path) -> Figures:
    """Of each pooler; from the file `kept` where it is there."""
    if not kept.is_file():
        names = (*pooler_names("all", model.config.num_layers), "lasttoken")
        views = EveryPooler(model, names).views()
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({name: evaluate_sts(view, senteval)["sts"] for name, view in views.items()}) + "\n")
    found: Figures = json.loads(kept.read_text())
    return {name: of | {"average": float(np.mean([of[task] for task in TASKS]))} for name, of in found.items()}


def by_own_pooler(run: Path) -> Figures:
    """What a run has measured itself, by the pooler that it was trained with."""
    sts: dict[str, float] = json.loads((run / "results.json").read_text())["sts"]
    pooler = json.loads((run / "config.json").read_text())["pooling"]
    return {pooler: sts | {"average": float(np.mean([sts[task] for task in TASKS]))}}


def keys_of(flags: argparse.Namespace) -> dict[str, Any]:
    """Of the sweep of rates and of the run."""
    return {
        "start": flags.start, "text": flags.text, "text_column": "", "senteval": flags.senteval, "dev_pairs": flags.dev_pairs,
        "pooling": flags.pooler, "student.layers": flags.layers, "student.attention": flags.attention,
    }  # fmt: skip


def best_rate(flags: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The trial, as sweep.json has it, of the rate that is best on dev. Raises SystemExit where a signal has stopped the sweep."""
    keys = [f"--config.{key}={value}" for key, value in keys_of(flags).items()]
    command = [
        sys.executable,
        "-m",
        "jdistill.sweep",
        "--config",
        CONFIG,
        "--workdir",
        str(folder),
        *keys,
        *flags.extra,
    ]
    rates = [f"--grid=learning_rate={','.join(flags.rates)}", f"--config.max_steps={flags.rate_steps}"]
    subprocess.run([*command, *rates], check=True)
    trials: list[dict[str, Any]] = json.loads((folder / "sweep.json").read_text())
    if len(trials) < len(set(map(float, flags.rates))):
        raise SystemExit(f"{folder}: stopped; the same command goes on")
    return trials[0]


def of_best_rate(flags: argparse.Namespace) -> tuple[Path, float]:
    """The run at the rate that is best on dev, finished, and the rate."""
    run = flags.workdir / "run"
    best = best_rate(flags, flags.workdir / "rates")
    rate: float = best["params"]["learning_rate"]
    print(f"rate {rate:g}, dev {best['score']:.2f} after {flags.rate_steps} steps")
    # What is chosen here after what the command line says for the sweep too.
    chosen = {"learning_rate": rate, "max_steps": flags.steps, "index_texts": 0, "latency_texts": 0, "onnx": False}
    chosen["evaluate_teacher"] = False
    finished_run(CONFIG, run, keys_of(flags), [*flags.extra, *(f"--config.{key}={of}" for key, of in chosen.items())])
    return run, rate


def of_run(flags: argparse.Namespace) -> tuple[Path, float]:
    """The run of --run and its rate. Raises SystemExit for one that is not finished, or has other keys than the command line says."""
    if not (flags.run / "results.json").is_file():
        raise SystemExit(f"--run {flags.run}: not a finished run")
    there = flatten_dict(json.loads((flags.run / "config.json").read_text()), sep=".")
    told = {
        key: value for key, value in keys_of(flags).items() if key not in ("start", "text", "senteval", "dev_pairs")
    }
    told |= {"max_steps": flags.steps} | dict(key.removeprefix("--config.").split("=", 1) for key in flags.extra)
    if others := [
        f"{key}={there.get(key)}, not {value}" for key, value in told.items() if str(there.get(key)) != str(value)
    ]:
        raise SystemExit(f"--run {flags.run}: {', '.join(others)}")
    return flags.run, there["learning_rate"]


def tuned_by(run: Path) -> str:
    """What a run of configs/ibkd.py:supervised goes by. Raises SystemExit for one that is not finished, is none, or has not scored STS."""
    config = flatten_dict(json.loads((run / "config.json").read_text()), sep=".") if run.is_dir() else {}
    if config.get("method") != "supervised" or not (run / "results.json").is_file():
        raise SystemExit(f"--tuned {run}: not a finished run of configs/ibkd.py:supervised")
    if not json.loads((run / "results.json").read_text()).get("sts", {}).keys() >= {*TASKS}:
        raise SystemExit(f"--tuned {run}: it has no STS figures; it needs --config.senteval")
    keys = ["start", "triplets", "pooling", "max_length", "dtype", "seed"]
    keys += [f"student.{name}" for name in ("layers", "copy_layers", "attention", "dropout")]
    keys += [key for key in config if key.startswith("finetune.") and key.count(".") == 1]
    return joined(
        [
            f"--config.{key}={shown(config[key]) if key in ('start', 'triplets') else config[key]}"
            for key in keys
            if key in config
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("start", "text", "senteval", "dev_pairs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--attention", default="bidirectional", choices=("causal", "bidirectional"))
    parser.add_argument("--pooler", default="avg_last4", help="that the run is trained with")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rates", nargs="+", default=["3e-5", "1e-4", "3e-4"])
    parser.add_argument("--rate_steps", type=int, default=100)
    parser.add_argument("--workdir", type=Path, default=Path("runs/distilface-table"))
    parser.add_argument("--run", type=Path)
    parser.add_argument("--tuned", type=Path, nargs="+", default=[])
    parser.add_argument("extra", nargs="*", help="of jdistill.sweep and jdistill.main, after --")
    flags = parser.parse_args()
    setup_logging()
    flags.workdir = flags.workdir.absolute()
    decides = ("start", "text", "senteval", "layers", "attention", "pooler", "rates", "rate_steps", "steps", "extra")
    given = {"run": flags.run.absolute()} if flags.run else {}  # its figures are kept there too
    check_settings(flags.workdir, {name: getattr(flags, name) for name in decides} | given, "rates")
    tuned = {of.name: tuned_by(of) for of in flags.tuned}
    if len(tuned) < len(flags.tuned):
        parser.error("--tuned: two runs of the same folder name; rename one")
    run, rate = of_run(flags) if flags.run else of_best_rate(flags)
    senteval, rows = Path(flags.senteval), {}
    for attention in dict.fromkeys(("causal", flags.attention)):
        untrained = untrained_student(run, distilface.get_config("poolers"), {"student.attention": attention})
        rows[f"untuned, {attention}"] = by_pooler(untrained, senteval, flags.workdir / f"{attention}.json")
    best_untuned = max(of["average"] for figures in rows.values() for of in figures.values())
    rows[f"trained, {flags.attention}"] = by_pooler(
        jdistill.load(str(run / "export")), senteval, flags.workdir / "trained.json"
    )
    for of in flags.tuned:
        rows[f"tuned, {of.name}"] = by_own_pooler(of)
    about = {
        "start": shown(flags.start),
        "text": shown(flags.text),
        "keys": joined(flags.extra),
        "layers": flags.layers,
    }
    about |= {"trained with": flags.pooler, "steps": flags.steps, "learning_rate": rate}
    about |= {"tuned": tuned} if tuned else {}
    kept = [
        {"row": name, "pooler": pooler} | of | {"of the best untuned (%)": 100 * of["average"] / best_untuned - 100}
        for name, figures in rows.items()
        for pooler, of in figures.items()
    ]
    keep_rows("distilface_table", command_line(), kept, ("row", "pooler"), **about)
    print(f"| | pooler | {' | '.join((*TASKS, 'average'))} | of the best untuned |\n|{' --- |' * (len(TASKS) + 4)}")
    for name, figures in rows.items():
        for pooler, of in figures.items():
            cells = " | ".join(f"{of[task]:.2f}" for task in (*TASKS, "average"))
            print(f"| {name} | {pooler} | {cells} | {100 * of['average'] / best_untuned - 100:+.1f} % |")


if __name__ == "__main__":
    main()
