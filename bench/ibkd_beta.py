"""IBKD's figure 3: the STS average against beta, after stage 1 and after stage 2, as a picture and a table.

    python bench/ibkd_beta.py --text sentences.txt.gz --triplets snli_triplets.jsonl --senteval SENTEVAL \\
        --workdir runs/ibkd-beta [--row ibkd-linear] [--betas 0 0.1 1 10] [--seeds 0 1] [--of 1]

Both stages take the same beta, or that of stage 1 or 2 alone moves (--of) and the other keeps the paper's; 0 in both is CKD. Runs as
bench/ibkd_table.py, whose folders ROW@BETA it shares. Adds to bench/results/ibkd_beta.json.
"""

from __future__ import annotations

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import argparse
import statistics

from ibkd_table import ROWS, figures, parse, run, table_settings
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from record import command_line, keep_rows

from configs import ibkd

STAGES = {"distil": "after stage 1", "finetune": "after stage 2"}


def betas_of(beta: float, of: str) -> str:
    """A row's betas as bench/ibkd_table.py reads them."""
    cfg = ibkd.get_config()
    first = beta if of in ("both", "1") else cfg.loss.beta
    second = beta if of in ("both", "2") else cfg.finetune.loss.beta
    return f"{first:g}" if first == second else f"{first:g},{second:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--betas", type=float, nargs="+", default=[0.0, 0.1, 0.5, 1.0, 2.0, 10.0])
    kernels = [row for row in ROWS if row.startswith("ibkd")]
    parser.add_argument("--row", choices=kernels, default="ibkd", help="of bench/ibkd_table.py: the kernel")
    parser.add_argument("--of", choices=("both", "1", "2"), default="both", help="the stage whose beta moves")
    flags = parse(parser)
    if not flags.senteval:
        parser.error("--senteval is needed: the figure is of its average")
    flags.geometry = False  # the picture is of STS
    averages: dict[str, list[float]] = {stage: [] for stage in STAGES}
    print(f"| beta | {' | '.join(STAGES.values())} |\n|{' --- |' * 3}")
    for beta in flags.betas:
        name = f"{flags.row}@{betas_of(beta, flags.of)}"
        found = [figures(flags, run(flags, name, seed)) for seed in flags.seeds]
        for stage in STAGES:
            averages[stage].append(statistics.mean(of_seed[stage]["Avg"] for of_seed in found))
        rows = [
            {"row": flags.row, "beta": beta, "of": flags.of, "seed": seed}
            | {label: of_seed[stage]["Avg"] for stage, label in STAGES.items()}
            for seed, of_seed in zip(flags.seeds, found, strict=True)
        ]
        keep_rows("ibkd_beta", command_line(), rows, ("row", "beta", "of", "seed"), **table_settings(flags))
        print(f"| {beta} | {' | '.join(f'{averages[stage][-1]:.2f}' for stage in STAGES)} |", flush=True)
    figure = Figure(figsize=(5, 3.4), dpi=200, layout="constrained")
    axes = figure.subplots()
    for (stage, label), colour in zip(STAGES.items(), ("#14568c", "#e08214"), strict=True):
        axes.plot(flags.betas, averages[stage], marker="o", color=colour, label=label)
    axes.set_xscale("symlog", linthresh=min((beta for beta in flags.betas if beta > 0), default=1.0))
    axes.set(xlabel="beta", ylabel="STS average")
    axes.grid(alpha=0.25)
    axes.legend()
    picture = flags.workdir / f"beta-{flags.of}.png"
    FigureCanvasAgg(figure).print_png(str(picture))
    print(picture)


if __name__ == "__main__":
    main()
