"""The command python -m jdistill.evaluate: scores an encoder on every set that is given.

python -m jdistill.evaluate --model SOURCE --senteval DIR --beir SOURCE --pairs FILE --entity FILE --geometry TEXTS \\
    --symmetric SOURCE --asymmetric SOURCE --test_split test --threshold_split dev --transfer sst2 mrpc --out results.json \\
    --mteb NanoBEIR beir:FOLDER --mteb_results FOLDER
"""

from __future__ import annotations

from jdistill.core.memory import keep_freed_memory

if __name__ == "__main__":
    keep_freed_memory()  # before numpy and JAX start threads

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from jdistill.core.compile_cache import keep_compiled_programs
from jdistill.core.errors import UserError, exits_cleanly, leave
from jdistill.core.fetched import path_here
from jdistill.core.folders import check_out_file, write_out
from jdistill.core.help import CommandHelp
from jdistill.core.printable import printable
from jdistill.core.progress import log, setup_logging
from jdistill.core.remote import local_only
from jdistill.data.sets.tasks import Task, read_task
from jdistill.encoder import loading, torch_backend
from jdistill.encoder.encoder import Encoder
from jdistill.encoder.pair_scorer import load_pair_scorer
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.collapse import check_vectors
from jdistill.evals.command_flags import ONNX_FILE, check_flags
from jdistill.evals.labelled_source import LabelledSource, read_labelled
from jdistill.evals.mteb.entry import mteb_scores, read_mteb
from jdistill.evals.poolers import EveryPooler, pooler_names
from jdistill.evals.sets import SETS, Options
from jdistill.evals.shared_space import check_one_space
from jdistill.evals.sts import evaluate_sts
from jdistill.evals.suite import evaluate, results_table
from jdistill.evals.transfer import evaluate_transfer
from jdistill.export.onnx import runtime
from jdistill.export.probe_texts import PROBE_TEXTS
from jdistill.models.interaction import BRANCHES
from jdistill.retrieval.index import EXACT
from jdistill.retrieval.index_kinds import check_index_flags

if TYPE_CHECKING:
    from jdistill.evals.mteb.run import TaskGroup

MADE_BY = "jdistill.evaluate"


@exits_cleanly(resumes=False)
def main(argv: list[str] | None = None) -> int:
    """The command `python -m jdistill.evaluate`; returns its exit status."""
    args = make_parser().parse_args(argv)
    keep_compiled_programs()
    setup_logging()
    out = local_only(args.out) if args.out else None
    if out:
        check_out_file(out, "--out", args.overwrite, MADE_BY)
    sets = read_sets(args)
    results = evaluate_model(args, sets)
    try:
        if out:
            check_out_file(out, "--out", args.overwrite, MADE_BY)  # again: hours may have passed
            write_out(out, {"made_by": MADE_BY} | results)
            log.info("written to %s", out)
    finally:  # after the file: whoever reads the table may have closed it
        print(printable(results_table(results), keep="\n"), flush=True)
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(
        formatter_class=CommandHelp,
        prog="python -m jdistill.evaluate",
        description="Scores an encoder; give at least one set.",
    )
    _add_sets(parser)
    _add_backend(parser)
    return parser


def _add_sets(parser: argparse.ArgumentParser) -> None:
    """The flags of the model and of what it is scored on."""
    parser.add_argument("--model", required=True, help="a folder, a hub id, pkg:import_name/sub/folder or a .gguf file")
    for name, of in SETS.items():
        parser.add_argument(f"--{name}", default="", metavar=of.metavar, help=of.help)
    for branch, asks in zip(
        BRANCHES, ("whether the two say the same", "whether the second answers the first"), strict=True
    ):
        parser.add_argument(
            f"--{branch}",
            default="",
            metavar="SOURCE",
            help=f"labelled pairs, {asks}, as --config.{branch} takes them, or a datasets id such as C-MTEB/OCNLI: average precision "
            "by cosine and, with --backend=flax, by the model's interaction module",
        )
    parser.add_argument("--test_split", default="", help="of labelled pairs in several splits: which are scored")
    parser.add_argument(
        "--threshold_split",
        default="",
        help="of labelled pairs: which choose a threshold; gives accuracy, F1, precision, recall",
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
        "--mteb",
        nargs="+",
        default=[],
        metavar="TASK",
        help="tasks and benchmarks by mteb's name (NanoBEIR, STSBenchmark; mteb extra), or local files scored by mteb's code: "
        "beir:FOLDER, pairs:FILE, labelled:FOLDER, or labelled:FOLDER:TASK of a SentEval folder",
    )
    parser.add_argument("--mteb_results", default="", metavar="FOLDER", help="of --mteb: where mteb's own files go")
    parser.add_argument(
        "--poolers", default="", metavar="NAMES", help="all, or some poolers: the STS tasks by each, in one pass"
    )


def _add_backend(parser: argparse.ArgumentParser) -> None:
    """The flags of what encodes and searches, and of the file that is written."""
    parser.add_argument(
        "--backend",
        choices=("flax", "torch", "onnx"),
        default="flax",
        help="torch: by sentence-transformers (torch extra); onnx: the graph in an exported folder",
    )
    parser.add_argument("--onnx_file", default=ONNX_FILE, help="of --backend=onnx, such as onnx/model_quint8_avx2.onnx")
    parser.add_argument(
        "--trust_remote_code", action="store_true", help="of --backend=torch: run Python files that the folder carries"
    )
    parser.add_argument(
        "--corpus_model", default="", metavar="SOURCE", help="encodes the documents of --beir and --mteb instead"
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
    parser.add_argument("--overwrite", action="store_true", help="replace a file --out that this command did not write")


@dataclass(frozen=True)
class EvaluationSets:
    """What a model is scored on. paths: by the names of evals.sets.SETS, "" for a set that is not given. mteb: as evals.mteb.run has it."""

    paths: dict[str, str]
    labelled: list[LabelledSource]
    tasks: list[Task]
    mteb: list[TaskGroup]


def read_sets(args: argparse.Namespace) -> EvaluationSets:
    """Reads or looks for every set that is named, before a model is loaded and hours of encoding begin.

    Raises: UserError for what is not there, and for flags that do not go together.
    """
    paths = {name: getattr(args, name) for name in SETS}
    sources = {branch: getattr(args, branch) for branch in BRANCHES if getattr(args, branch)}
    check_flags(args, bool(sources), bool(any(paths.values())))
    keys = ("transfer", "task_dir" if args.task_dir else "senteval")
    tasks = [read_task(name, args.task_dir or args.senteval, keys=keys) for name in args.transfer]
    for name, path in paths.items():
        if path:
            SETS[name].check(path, name)
    labelled = [read_labelled(path, branch, args.test_split, args.threshold_split) for branch, path in sources.items()]
    return EvaluationSets(paths, labelled, tasks, read_mteb(args.mteb, args.mteb_results) if args.mteb else [])


def make_loader(args: argparse.Namespace) -> Callable[..., TextEncoder]:
    """(source, key="model") -> encoder, by the backend that the flags name; key: what error messages call it."""
    of_torch = partial(torch_backend.load_torch_encoder, takes_router=False)
    backends: dict[str, Callable[..., TextEncoder]] = {
        "flax": loading.load,
        "torch": partial(of_torch, trust_remote_code=args.trust_remote_code),
        "onnx": partial(runtime.load_onnx_encoder, file=args.onnx_file),
    }
    return backends[args.backend]


def evaluate_model(args: argparse.Namespace, sets: EvaluationSets) -> dict[str, Any]:
    """The figures of a model on every set, by the set's name; "model" says what was scored."""
    load = make_loader(args)
    scorer = load_pair_scorer(args.model) if args.backend == "flax" else None
    model = scorer.encoder if scorer else load(args.model)
    if args.rescore and (scorer is None or scorer.params is None):
        raise UserError(f"--rescore: {args.model} has no interaction module to rank documents anew by; leave it out")
    check_vectors(model.encode(list(PROBE_TEXTS)), f"--model={args.model}")
    # Names that do not fit should be known before hours of encoding.
    poolers = None
    if args.poolers and isinstance(model, Encoder):
        poolers = EveryPooler(model, pooler_names(args.poolers, model.config.num_layers))
    about = {"source": args.model, "num_params": model.num_params, "dim": model.dim, "backend": args.backend}
    if args.backend == "onnx":
        about["onnx_file"] = args.onnx_file
    results: dict[str, Any] = {"model": about | ({"corpus_model": args.corpus_model} if args.corpus_model else {})}
    corpus_model = load(args.corpus_model, key="corpus_model") if args.corpus_model else None
    if args.beir:
        check_index_flags(args.index, args.index_effort, (corpus_model or model).dim)
    if corpus_model is not None and sets.mteb:  # whose texts are not read yet
        check_one_space(model, corpus_model, list(PROBE_TEXTS), f"--corpus_model={args.corpus_model}")
    results |= evaluate(
        model,
        **sets.paths,
        labelled=sets.labelled,
        options=Options(
            scorer=scorer,
            corpus_model=corpus_model,
            index=args.index,
            index_effort=args.index_effort,
            rescore=int(args.rescore) if args.rescore.isdecimal() else (0 if args.rescore else None),
        ),
    )
    if sets.tasks:
        results["transfer"] = {task.name: evaluate_transfer(model, task) for task in sets.tasks}
    if sets.mteb:
        owner = {"corpus_model": corpus_model, "corpus_source": args.corpus_model}
        results["mteb"] = mteb_scores(sets.mteb, args.mteb_results, model, args.model, backend=args.backend, **owner)
    if poolers:
        results["poolers"] = {
            name: evaluate_sts(view, path_here(args.senteval, "senteval")) for name, view in poolers.views().items()
        }
    return results


if __name__ == "__main__":
    leave(main())
