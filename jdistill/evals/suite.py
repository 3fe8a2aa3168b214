"""An encoder on every evaluation set that is given, and its figures as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jdistill.core.errors import UserError
from jdistill.encoder.text_encoder import TextEncoder
from jdistill.evals.labelled_source import LabelledSource, evaluate_labelled
from jdistill.evals.sets import SETS, Options, line_of


def evaluate(
    encoder: TextEncoder,
    *,
    labelled: Sequence[LabelledSource] = (),
    options: Options | None = None,
    **sources: str,
) -> dict[str, Any]:
    """The figures of an encoder on the sets that are given.

    Args:
      labelled: files of labelled pairs.
      options: what they are scored by, beside the encoder; None: nothing.
      sources: by the names of evals.sets.SETS; an empty one is passed over.

    Returns: each set's figures under its own keys: "sts", "sts_pearson", "sts_by_subset", "words_sts", "sts_by_module" (evals.sts), "retrieval",
      "query_model_retrieval" (evals.retrieval), "bm25_retrieval" (evals.lexical), "scored_pairs" and "words_scored_pairs" (Spearman x
      100), "entity", "geometry";
      and "labelled_pairs" (evals.labelled_source).

    Raises: UserError for a set that is missing or malformed, and for a name that there is not.
    """
    if unknown := sorted(sources.keys() - SETS.keys()):
        raise UserError(f"there is no evaluation set {', '.join(unknown)}; there are {', '.join(SETS)}")
    options = replace(options or Options(), senteval=sources.get("senteval", ""))
    results: dict[str, Any] = {}
    for name, of in SETS.items():
        if source := sources.get(name):
            results |= of.evaluate(encoder, source, options)
    for pairs_of in labelled:
        both = results.setdefault("labelled_pairs", {})
        name = f"{pairs_of.name}-{pairs_of.branch}" if pairs_of.name in both else pairs_of.name
        both[name] = evaluate_labelled(encoder, pairs_of, options.module)
    return results


def results_table(results: dict[str, Any]) -> str:
    """The figures of evaluate() as lines for a terminal."""
    lines = [line for of in SETS.values() for line in of.lines(results)]
    for name, rows in results.get("labelled_pairs", {}).items():
        for how, figures in rows.items():
            lines += [f"Labelled pairs, {name}, by {how}", *(line_of(*item) for item in figures.items())]
    for name, figures in results.get("transfer", {}).items():
        of_cosine = {f"cosine {what}": value for what, value in figures.get("cosine", {}).items()}
        plain = {what: value for what, value in figures.items() if what not in ("cosine", "split")} | of_cosine
        lines += [
            f"Transfer, {name}, {figures['split']}",
            *(f"  {what:<24}{value:8.2f}" for what, value in plain.items()),
        ]
    for name, figures in results.get("mteb", {}).items():
        lines += [f"mteb, {name}", *(line_of(*item) for item in figures.items())]
    if "poolers" in results:
        tasks = list(next(iter(results["poolers"].values()))["sts"])
        lines += ["STS by pooler", f"  {'':<28}" + "".join(f"{task:>8}" for task in tasks)]
        for name, figures in results["poolers"].items():
            lines.append(f"  {name:<28}" + "".join(f"{figures['sts'][task]:8.2f}" for task in tasks))
    return "\n".join(lines)
