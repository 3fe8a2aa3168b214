"""IBKD's figure 3: a figure of the student against beta, after stage 1 and after stage 2, as a picture and a table.

    python bench/ibkd_beta.py --text sentences.txt.gz --triplets snli_triplets.jsonl [--senteval SENTEVAL] --dev_pairs \\
        sts-dev-clean.csv --workdir runs/ibkd-beta [--row ibkd-linear] [--betas 0 1e-9 1 10] [--seeds 0 1] [--of 1]

Both stages take the same beta, or that of stage 1 or 2 alone moves (--of) and the other keeps the paper's; 0 in both is CKD, and 1e-9
is it too, with X's and S's dependence (CKA) measured. The figure is the STS average with --senteval, else that of the dev pairs. Runs
as bench/ibkd_table.py, whose folders ROW@BETA it shares. Adds to bench/results/ibkd_beta.json.
"""

from __future__ import annotations

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import argparse
import statistics
from pathlib import Path

import matplotlib
from ibkd_table import ROWS, figures, parse, run, table_settings
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


def row_of(of_stages: dict[str, dict[str, float]], measure: str) -> dict[str, float]:
    """The columns of one run: its measure after each stage, and the last batch's CKA of X and S where it was measured.

    Args:
      of_stages: as bench/ibkd_table.py's figures gives them.
      measure: Avg or dev pairs.
    """
    found = {label: of_stages[stage][measure] for stage, label in STAGES.items()}
    return found | {
        f"cka {label}": of_stages[stage]["cka"] for stage, label in STAGES.items() if "cka" in of_stages[stage]
    }


def draw(picture: Path, of: str, measure: str, betas: list[float], averages: dict[str, list[float]]) -> None:
    """A curve a stage over beta, whose axis is linear below the smallest that is above 1e-9 and by powers of ten from there on."""
    matplotlib.rcParams |= {"svg.hashsalt": "ibkd", "svg.fonttype": "none"}  # the same file for the same figures
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    for (stage, label), colour in zip(STAGES.items(), ("#14568c", "#e08214"), strict=True):
        axes.plot(betas, averages[stage], marker="o", color=colour, label=label)
    axes.set_xscale("symlog", linthresh=min((beta for beta in betas if beta > 1e-9), default=1.0))
    axes.set(xlabel={"both": "beta of both stages"}.get(of, f"beta of stage {of}"), ylabel=measure)
    axes.grid(alpha=0.25)
    axes.legend()
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--betas", type=float, nargs="+", default=[0.0, 0.1, 0.5, 1.0, 2.0, 10.0])
    kernels = [row for row in ROWS if row.startswith("ibkd")]
    parser.add_argument("--row", choices=kernels, default="ibkd", help="of bench/ibkd_table.py: the kernel")
    parser.add_argument("--of", choices=("both", "1", "2"), default="both", help="the stage whose beta moves")
    flags = parse(parser)
    if not flags.senteval and not flags.dev_pairs:
        parser.error("the figure is of --senteval's average or of --dev_pairs; name one")
    flags.geometry = flags.read = False  # what they tell is not drawn
    measure = "Avg" if flags.senteval else "dev pairs"
    averages: dict[str, list[float]] = {stage: [] for stage in STAGES}
    print(f"| beta | {' | '.join(STAGES.values())} |\n|{' --- |' * 3}")
    for beta in flags.betas:
        name = f"{flags.row}@{betas_of(beta, flags.of)}"
        found = [row_of(figures(flags, run(flags, name, seed)), measure) for seed in flags.seeds]
        named = {"row": flags.row, "beta": beta, "of": flags.of, "measure": measure}
        rows = [named | {"seed": seed} | of_seed for seed, of_seed in zip(flags.seeds, found, strict=True)]
        keep_rows("ibkd_beta", command_line(), rows, ("row", "beta", "of", "measure", "seed"), **table_settings(flags))
        for stage, label in STAGES.items():
            averages[stage].append(statistics.mean(of_seed[label] for of_seed in found))
        print(f"| {beta:g} | {' | '.join(f'{averages[stage][-1]:.2f}' for stage in STAGES)} |", flush=True)
    picture = flags.workdir / f"beta-{flags.of}.svg"
    draw(picture, flags.of, measure, flags.betas, averages)
    print(picture)


if __name__ == "__main__":
    main()
