"""The command python -m jdistill.evaluate: scores an encoder on every set that is given.

python -m jdistill.evaluate --model SOURCE --senteval DIR --beir DIR --pairs FILE --entity FILE --geometry TEXTS \\
    --transfer sst2 mrpc --out results.json
"""

from __future__ import annotations

from jdistill.host_memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from jdistill import loading, onnx_encoder, torch_encoder
from jdistill.compile_cache import keep_compiled_programs
from jdistill.data.sources import read_texts
from jdistill.data.tasks import read_task
from jdistill.encoder import Encoder, TextEncoder
from jdistill.errors import UserError, exits_cleanly
from jdistill.evals.entity import evaluate_entity
from jdistill.evals.geometry import evaluate_geometry
from jdistill.evals.poolers import EveryPooler, pooler_names
from jdistill.evals.retrieval import evaluate_retrieval
from jdistill.evals.sts import evaluate_pairs, evaluate_sts
from jdistill.evals.transfer import evaluate_transfer
from jdistill.index import EXACT
from jdistill.pair_scorer import PairScorer, load_pair_scorer
from jdistill.progress import log, setup_logging
from jdistill.workdir import write_json

SETS = ("senteval", "beir", "pairs", "entity", "geometry")


def evaluate(
    encoder: TextEncoder,
    *,
    senteval: str = "",
    beir: str = "",
    pairs: str = "",
    entity: str = "",
    geometry: str = "",
    corpus_model: TextEncoder | None = None,
    index: str = EXACT,
    index_effort: str = "",
    scorer: PairScorer | None = None,
    rescore: int = 0,
) -> dict[str, Any]:
    """The figures of an encoder on the sets that are given, each a path; an empty one is passed over.

    "sts" and "sts_by_subset" (see evals.sts), "retrieval" (evals.retrieval, where corpus_model, index, index_effort,
    scorer and rescore belong), "scored_pairs" (Spearman x 100), "entity" (evals.entity), "geometry" (evals.geometry: alignment and uniformity on
    senteval's STS-B, covariance over the texts of this source). Raises UserError for a set that is missing or malformed.
    """
    results: dict[str, Any] = {}
    if senteval:
        results |= evaluate_sts(encoder, Path(senteval))
    if beir:
        results["retrieval"] = evaluate_retrieval(
            encoder,
            Path(beir),
            corpus_model=corpus_model,
            kind=index,
            effort=index_effort,
            scorer=scorer,
            rescore=rescore,
        )
    if pairs:
        results["scored_pairs"] = evaluate_pairs(encoder, Path(pairs))
    if entity:
        results["entity"] = evaluate_entity(encoder, Path(entity))
    if geometry:
        if not senteval:
            raise UserError(
                "the geometry of vectors is measured on STS-B and on texts: --geometry needs --senteval too"
            )
        results["geometry"] = evaluate_geometry(
            encoder, Path(senteval), read_texts(geometry, key="geometry").texts
        ).figures
    return results


def table(results: dict[str, Any]) -> str:
    """The figures of evaluate() as lines for a terminal."""
    lines: list[str] = []
    if "sts" in results:
        lines += ["STS, Spearman x 100", *(f"  {task:<24}{value:8.2f}" for task, value in results["sts"].items())]
    for name, figures in results.get("retrieval", {}).items():
        lines += [f"Retrieval, {name}", *(_line(*item) for item in figures.items())]
    if "scored_pairs" in results:
        lines += ["Scored pairs, Spearman x 100", f"  {'pairs':<24}{results['scored_pairs']:8.2f}"]
    for name, figures in results.get("transfer", {}).items():
        of_cosine = {f"cosine {what}": value for what, value in figures.get("cosine", {}).items()}
        plain = {what: value for what, value in figures.items() if what != "cosine"} | of_cosine
        lines += [f"Transfer, {name}", *(f"  {what:<24}{value:8.2f}" for what, value in plain.items())]
    if "poolers" in results:
        tasks = list(next(iter(results["poolers"].values()))["sts"])
        lines += ["STS by pooler", f"  {'':<28}" + "".join(f"{task:>8}" for task in tasks)]
        for name, figures in results["poolers"].items():
            lines.append(f"  {name:<28}" + "".join(f"{figures['sts'][task]:8.2f}" for task in tasks))
    for name, title in (("entity", "Entity resolution"), ("geometry", "Geometry of the vectors")):
        if name in results:
            lines += [title, *(_line(*item) for item in results[name].items())]
    return "\n".join(lines)


def _line(name: str, value: float | int) -> str:
    if isinstance(value, int):
        return f"  {name:<24}{value:8d}"
    return f"  {name:<24}{value:8.4f}" if abs(value) < 100 else f"  {name:<24}{value:8.0f}"


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
    parser.add_argument(
        "--geometry", default="", metavar="TEXTS", help="texts as --config.text takes them: the shape of the vectors"
    )
    parser.add_argument(
        "--transfer",
        nargs="+",
        default=[],
        metavar="TASK",
        help="labelled tasks such as sst2 mrpc: a logistic regression on frozen vectors, and the cosine of pairs",
    )
    parser.add_argument("--task_dir", default="", help="of --transfer: as --config.task_dir; empty: --senteval")
    parser.add_argument(
        "--poolers", default="", metavar="NAMES", help="all, or some poolers: the STS tasks by each, in one pass"
    )
    parser.add_argument(
        "--backend",
        choices=("flax", "torch", "onnx"),
        default="flax",
        help="torch: by sentence-transformers (torch extra); onnx: the graph in an exported folder",
    )
    parser.add_argument(
        "--onnx_file", default="onnx/model.onnx", help="of --backend=onnx, such as onnx/model_int8.onnx"
    )
    parser.add_argument(
        "--trust_remote_code", action="store_true", help="of --backend=torch: run Python files that the folder carries"
    )
    parser.add_argument(
        "--corpus_model", default="", metavar="SOURCE", help="encodes the documents of --beir in the model's place"
    )
    parser.add_argument(
        "--index", default=EXACT, help="of --beir, as FAISS writes it: Flat, IVF256,Flat, PQ48, HNSW32 …"
    )
    parser.add_argument("--index_effort", default="", help="of its search: nprobe=16, efSearch=128 …")
    parser.add_argument(
        "--rescore",
        default="",
        metavar="COUNT",
        help="of --beir: the model's interaction module ranks so many documents that the index proposes, or all",
    )
    parser.add_argument("--out", default="", metavar="FILE", help="the figures as JSON; else they are only printed")
    args = parser.parse_args(argv)
    keep_compiled_programs()
    setup_logging()
    sets = {name: getattr(args, name) for name in SETS}
    if not any(sets.values()) and not args.transfer:
        names = ", ".join(f"--{name}" for name in (*SETS, "transfer"))
        raise UserError(f"nothing to evaluate on: give at least one of {names}")
    if args.transfer and not (args.task_dir or args.senteval):
        raise UserError("--transfer needs --task_dir or --senteval, the folder that holds the tasks")
    tasks = [read_task(name, args.task_dir or args.senteval) for name in args.transfer]
    # Before the model is loaded and hours of encoding begin.
    for name, path in sets.items():
        if path and name != "geometry" and not Path(path).exists():
            raise UserError(f"--{name}={path}: no such file or folder")
    if args.poolers and (args.backend != "flax" or not args.senteval):
        raise UserError("--poolers: the STS tasks by each pooler need --senteval, and --backend=flax")
    if args.out and Path(args.out).is_dir():
        raise UserError(f"--out={args.out} is a folder; name a file")
    if args.rescore and (args.backend != "flax" or not (args.rescore == "all" or args.rescore.isdecimal())):
        raise UserError(f"--rescore={args.rescore}: a number of documents or all, and --backend=flax")
    backends: dict[str, Callable[[str], TextEncoder]] = {
        "flax": loading.load,
        "torch": partial(torch_encoder.load, trust_remote_code=args.trust_remote_code),
        "onnx": partial(onnx_encoder.load, file=args.onnx_file),
    }
    load = backends[args.backend]
    scorer = load_pair_scorer(args.model) if args.rescore else None
    model = scorer.encoder if scorer else load(args.model)
    # Names that do not fit should be known before hours of encoding.
    every = (
        EveryPooler(model, pooler_names(args.poolers, model.config.num_layers))
        if args.poolers and isinstance(model, Encoder)
        else None
    )
    about = {"source": args.model, "num_params": model.num_params, "dim": model.dim, "backend": args.backend}
    figures = evaluate(
        model,
        **sets,
        corpus_model=load(args.corpus_model) if args.corpus_model else None,
        index=args.index,
        index_effort=args.index_effort,
        scorer=scorer,
        rescore=int(args.rescore) if args.rescore.isdecimal() else 0,
    )
    results = {"model": about} | figures
    if tasks:
        results["transfer"] = {task.name: evaluate_transfer(model, task) for task in tasks}
    if every:
        results["poolers"] = {name: evaluate_sts(view, Path(args.senteval)) for name, view in every.views().items()}
    if args.out:
        out = Path(args.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, results)
        log.info("written to %s", out)
    print(table(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
