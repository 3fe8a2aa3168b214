"""DistilFACE on a raw language model: STS by pooler before and after contrastive training, the rate picked on dev pairs.

    python bench/distilface_table.py --start MODEL.gguf --text sentences.txt.gz --senteval SENTEVAL \\
        --dev_pairs sts-dev-clean.csv --workdir runs/distilface-table [--layers 8] [--pooler avg_last4] [--steps 1000] \\
        [--rates 3e-5 1e-4 3e-4] [--rate_steps 100] [-- --config.batch_size=64 …]

Before: the start's first layers as they are, reading as the student does, as many tokens too, and, where that is both ways,
causally as well. Averages are the paper's, of STS12 to 15 and STS-B. The best untuned is the best of all rows before, of the
paper's 14 poolers and the last token's. Everything resumes. Adds to bench/results/distilface_table.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from record import command_line, joined, keep_rows, shown

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads


import jdistill
from configs import distilface
from jdistill.core.progress import setup_logging
from jdistill.data.batching.batches import TokenTable
from jdistill.encoder.encoder import Encoder
from jdistill.evals.poolers import EveryPooler, pooler_names
from jdistill.evals.sts import evaluate_sts
from jdistill.students.transformer import make_student

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


def untrained(start: Encoder, layers: int, attention: str) -> Encoder:
    cfg = distilface.get_config()
    cfg.student.layers, cfg.student.attention = layers, attention
    no_tokens = TokenTable(np.zeros(0, np.int32), np.zeros(1, np.int64))  # a decoder's start asks nothing of the text
    return make_student(cfg, replace(start, max_length=cfg.max_length), no_tokens)


def command(module: str, flags: argparse.Namespace, workdir: Path, *more: str) -> None:
    keys = [
        f"--config.start={flags.start}", f"--config.text={flags.text}", "--config.text_column=",
        f"--config.senteval={flags.senteval}", f"--config.dev_pairs={flags.dev_pairs}", f"--config.pooling={flags.pooler}",
        f"--config.student.layers={flags.layers}", f"--config.student.attention={flags.attention}",
    ]  # fmt: skip
    arguments = ["--config", "configs/distilface.py:poolers", "--workdir", str(workdir), *keys, *flags.extra, *more]
    subprocess.run([sys.executable, "-m", f"jdistill.{module}", *arguments], check=True)


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
    parser.add_argument("extra", nargs="*", help="of jdistill.sweep and jdistill.main, after --")
    flags = parser.parse_args()
    setup_logging()
    sweep, run = flags.workdir / "rates", flags.workdir / "run"
    command(
        "sweep", flags, sweep, f"--grid=learning_rate={','.join(flags.rates)}", f"--config.max_steps={flags.rate_steps}"
    )
    best = json.loads((sweep / "sweep.json").read_text())[0]
    print(f"rate {best['params']['learning_rate']:g}, dev {best['score']:.2f} after {flags.rate_steps} steps")
    command(
        "main", flags, run, f"--config.learning_rate={best['params']['learning_rate']}", f"--config.max_steps={flags.steps}",
        "--config.index_texts=0", "--config.latency_texts=0", "--config.onnx=False", "--config.evaluate_teacher=False",
    )  # fmt: skip
    senteval, start = Path(flags.senteval), jdistill.load(flags.start)
    rows = {
        f"untuned, {attention}": by_pooler(
            untrained(start, flags.layers, attention), senteval, flags.workdir / f"{attention}.json"
        )
        for attention in dict.fromkeys(("causal", flags.attention))
    }
    best_untuned = max(of["average"] for figures in rows.values() for of in figures.values())
    rows[f"trained, {flags.attention}"] = by_pooler(
        jdistill.load(str(run / "export")), senteval, flags.workdir / "trained.json"
    )
    about = {
        "start": shown(flags.start),
        "text": shown(flags.text),
        "keys": joined(flags.extra),
        "layers": flags.layers,
    }
    about |= {"trained with": flags.pooler, "steps": flags.steps, "learning_rate": best["params"]["learning_rate"]}
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
