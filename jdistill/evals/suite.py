"""An encoder on every evaluation set that is given, and its figures as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.data.text.sources import read_texts
from jdistill.encoder.encoder import TextEncoder
from jdistill.encoder.pair_scorer import PairScorer
from jdistill.evals.entity import evaluate_entity
from jdistill.evals.geometry import evaluate_geometry
from jdistill.evals.labelled_source import LabelledSource, evaluate_labelled
from jdistill.evals.retrieval import evaluate_retrieval
from jdistill.evals.sts import evaluate_pairs, evaluate_sts
from jdistill.retrieval.index import EXACT

SETS = ("senteval", "beir", "pairs", "entity", "geometry")


def evaluate(
    encoder: TextEncoder,
    *,
    senteval: str = "",
    beir: str = "",
    pairs: str = "",
    labelled: Sequence[LabelledSource] = (),
    entity: str = "",
    geometry: str = "",
    corpus_model: TextEncoder | None = None,
    index: str = EXACT,
    index_effort: str = "",
    scorer: PairScorer | None = None,
    rescore: int | None = None,
) -> dict[str, Any]:
    """The figures of an encoder on the sets that are given, each a path, beir also a datasets id; an empty one is passed over.

    "sts", "sts_pearson" and "sts_by_subset" (see evals.sts); "retrieval" (evals.retrieval, where corpus_model, index, index_effort and
    rescore belong; rescore None: by the index alone); "scored_pairs" (Spearman x 100); "labelled_pairs" (evals.labelled_source);
    "entity" (evals.entity); "geometry" (evals.geometry: alignment and uniformity on senteval's STS-B, covariance over the texts of
    this source). scorer: the encoder with its interaction module, by which STS ("sts_by_module") and labelled pairs are scored too.
    Raises UserError for a set that is missing or malformed.
    """
    results: dict[str, Any] = {}
    module = scorer if scorer is not None and scorer.params is not None else None
    if senteval:
        results |= evaluate_sts(encoder, Path(senteval), module)
    if beir:
        results["retrieval"] = evaluate_retrieval(
            encoder,
            beir,
            corpus_model=corpus_model,
            kind=index,
            effort=index_effort,
            scorer=None if rescore is None else scorer,
            rescore=rescore or 0,
        )
    if pairs:
        results["scored_pairs"] = evaluate_pairs(encoder, Path(pairs))
    for pairs_of in labelled:
        both = results.setdefault("labelled_pairs", {})
        name = f"{pairs_of.name}-{pairs_of.branch}" if pairs_of.name in both else pairs_of.name
        both[name] = evaluate_labelled(encoder, pairs_of, module)
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
    if "sts_by_module" in results:
        by_module = results["sts_by_module"]["spearman"].items()
        lines += ["STS by the interaction module, Spearman x 100", *(f"  {task:<24}{x:8.2f}" for task, x in by_module)]
    for name, rows in results.get("labelled_pairs", {}).items():
        for how, figures in rows.items():
            lines += [f"Labelled pairs, {name}, by {how}", *(_line(*item) for item in figures.items())]
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
