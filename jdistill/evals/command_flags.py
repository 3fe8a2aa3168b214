"""Which flags of python -m jdistill.evaluate go together: one that would do nothing is refused before a model is loaded."""

from __future__ import annotations

import argparse
from pathlib import Path

from jdistill.core.errors import UserError
from jdistill.data.sets.tasks import has_own_files
from jdistill.evals.sets import SETS
from jdistill.models.interaction import BRANCHES
from jdistill.retrieval.index import EXACT

ONNX_FILE = "onnx/model.onnx"  # of an exported folder, where --onnx_file names no other


def check_flags(args: argparse.Namespace, has_labelled: bool, has_sets: bool) -> None:
    """Raises UserError for flags that do not go together.

    Args:
      args: the command's flags.
      has_labelled: whether labelled pairs are given.
      has_sets: whether one of evals.sets.SETS is.
    """
    if args.poolers and (args.backend != "flax" or not args.senteval):
        raise UserError("--poolers: the STS tasks by each pooler need --senteval, and --backend=flax")
    if not has_sets and not has_labelled and not args.transfer and not args.mteb:
        names = ", ".join(f"--{name}" for name in (*SETS, *BRANCHES, "transfer", "mteb"))
        raise UserError(f"nothing to evaluate on: give at least one of {names}")
    if args.geometry and not args.senteval:
        raise UserError("the geometry of vectors is measured on STS-B and on texts: --geometry needs --senteval too")
    if bool(args.mteb) != bool(args.mteb_results):
        raise UserError("--mteb, what to score on, and --mteb_results, the folder for mteb's files, go together")
    if args.transfer and not (args.task_dir or args.senteval):
        raise UserError("--transfer needs --task_dir or --senteval, the folder that holds the tasks")
    if len(args.transfer) > 1 and args.task_dir and has_own_files(Path(args.task_dir)):
        raise UserError(
            f"--task_dir={args.task_dir} is one task, with a train file of its own, and --transfer names {len(args.transfer)}; name one"
        )
    if (args.test_split or args.threshold_split) and not has_labelled:
        raise UserError("--test_split and --threshold_split are of --symmetric or --asymmetric, which is not given")
    counted = args.rescore.isdecimal() and int(args.rescore) > 0
    if args.rescore and (args.backend != "flax" or not (args.rescore == "all" or counted)):
        raise UserError(
            f"--rescore={args.rescore}: a number of documents, 1 or more, or all, and --backend=flax; without the flag none is ranked anew"
        )
    if args.rescore == "all" and (args.index != EXACT or args.index_effort):
        raise UserError(
            "--rescore=all ranks every document, so that no index proposes any: leave out --index and --index_effort"
        )
    _refuse_without_effect(args)


def _refuse_without_effect(args: argparse.Namespace) -> None:
    """Raises UserError for a flag of another one that is not given."""
    of_beir = {"index": args.index != EXACT, "index_effort": args.index_effort, "rescore": args.rescore}
    for name, is_set, reads_it, what in (
        ("corpus_model", args.corpus_model, args.beir or args.mteb, "--beir or --mteb"),
        *((name, is_set, args.beir, "--beir") for name, is_set in of_beir.items()),
        ("task_dir", args.task_dir, args.transfer, "--transfer"),
        ("onnx_file", args.onnx_file != ONNX_FILE, args.backend == "onnx", "--backend=onnx"),
        ("trust_remote_code", args.trust_remote_code, args.backend == "torch", "--backend=torch"),
    ):
        if is_set and not reads_it:
            raise UserError(
                f"--{name} is of {what}, which is not given: it would do nothing; leave it out, or add that"
            )
