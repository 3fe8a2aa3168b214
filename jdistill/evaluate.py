"""The command python -m jdistill.evaluate: scores an encoder on every set that is given.

python -m jdistill.evaluate --model SOURCE --senteval DIR --beir DIR --pairs FILE --entity FILE --out results.json
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from jdistill import encoder as encoders
from jdistill.encoder import Encoder
from jdistill.errors import UserError, exits_cleanly
from jdistill.evals.entity import evaluate_entity
from jdistill.evals.retrieval import evaluate_retrieval
from jdistill.evals.sts import evaluate_pairs, evaluate_sts
from jdistill.host_memory import keep_freed_memory
from jdistill.progress import log, setup_logging

SETS = ("senteval", "beir", "pairs", "entity")


def evaluate(
    encoder: Encoder, *, senteval: str = "", beir: str = "", pairs: str = "", entity: str = ""
) -> dict[str, Any]:
    """The figures of an encoder on the sets that are given, each a path; an empty one is passed over.

    "sts" and "sts_by_subset" (see evals.sts), "retrieval" (evals.retrieval), "pairs" (Spearman x 100), "entity"
    (evals.entity). Raises UserError for a set that is missing or malformed.
    """
    results: dict[str, Any] = {}
    if senteval:
        results |= evaluate_sts(encoder, Path(senteval))
    if beir:
        results["retrieval"] = evaluate_retrieval(encoder, Path(beir))
    if pairs:
        results["pairs"] = evaluate_pairs(encoder, Path(pairs))
    if entity:
        results["entity"] = evaluate_entity(encoder, Path(entity))
    return results


def table(results: dict[str, Any]) -> str:
    """The figures of evaluate() as lines for a terminal."""
    lines: list[str] = []
    if "sts" in results:
        lines += ["STS, Spearman x 100", *(f"  {task:<24}{value:8.2f}" for task, value in results["sts"].items())]
    for name, figures in results.get("retrieval", {}).items():
        lines += [f"Retrieval, {name}", *(f"  {measure:<24}{value:8.4f}" for measure, value in figures.items())]
    if "pairs" in results:
        lines += ["Scored pairs, Spearman x 100", f"  {'pairs':<24}{results['pairs']:8.2f}"]
    if "entity" in results:
        shown = {
            name: f"{value:8.4f}" if isinstance(value, float) else f"{value:8d}"
            for name, value in results["entity"].items()
        }
        lines += ["Entity resolution", *(f"  {name:<24}{value}" for name, value in shown.items())]
    return "\n".join(lines)


@exits_cleanly
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m jdistill.evaluate", description="Scores an encoder; give at least one set."
    )
    parser.add_argument("--model", required=True, help="a folder, a hub id, or pkg:import_name/sub/folder")
    parser.add_argument("--senteval", default="", metavar="DIR", help="a SentEval folder: the seven STS tasks")
    parser.add_argument("--beir", default="", metavar="DIR", help="a folder of retrieval collections in BEIR layout")
    parser.add_argument("--pairs", default="", metavar="FILE", help="scored sentence pairs, .csv .tsv .txt or .jsonl")
    parser.add_argument("--entity", default="", metavar="FILE", help="a .csv with query, entity, label")
    parser.add_argument("--out", default="", metavar="FILE", help="the figures as JSON; else they are only printed")
    args = parser.parse_args(argv)
    keep_freed_memory()
    setup_logging()
    sets = {name: getattr(args, name) for name in SETS}
    if not any(sets.values()):
        raise UserError("nothing to evaluate on: give at least one of " + ", ".join(f"--{name}" for name in SETS))
    # Before the model is loaded and hours of encoding begin.
    for name, path in sets.items():
        if path and not Path(path).exists():
            raise UserError(f"--{name}={path}: no such file or folder")
    if args.out and Path(args.out).is_dir():
        raise UserError(f"--out={args.out} is a folder; name a file")
    model = encoders.load(args.model)
    about = {"source": args.model, "num_params": model.num_params, "dim": model.dim}
    results = {"model": about} | evaluate(model, **sets)
    if args.out:
        out = Path(args.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = out.with_name(out.name + ".part")
        beside.write_text(json.dumps(results, indent=2) + "\n")
        os.replace(beside, out)
        log.info("written to %s", out)
    print(table(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
