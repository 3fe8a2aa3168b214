"""What a run that ends says of its results: the figures that a reader wants first, a line each."""

from __future__ import annotations

from typing import Any

from jdistill.evals import agreement
from jdistill.report.facts import searched_by


def headline_lines(results: dict[str, Any], other: str) -> list[str]:
    """The result a reader wants first, as log lines. other: what the model beside the student is called, as report.beside has it."""
    lines = [f"WARNING: {results['warning']}"] if results.get("warning") else []
    if "Avg" in results.get("sts", {}):
        teacher, words = (results.get(f"{whose}_sts", {}).get("Avg") for whose in ("teacher", "words"))
        lines.append(f"STS average {results['sts']['Avg']:.2f}" + _beside(teacher, words, other))
    if "scored_pairs" in results:
        teacher, words = (results.get(f"{whose}_scored_pairs") for whose in ("teacher", "words"))
        lines.append(f"dev pairs, Spearman {results['scored_pairs']:.2f}" + _beside(teacher, words, other))
    lines += [line for name in results.get("retrieval", {}) if (line := _of_collection(results, name, other))]
    for name, scores in results.get("task", {}).items():
        figures = ", ".join(f"{metric} {value:.2f}" for metric, value in scores.items() if isinstance(value, float))
        lines.append(f"{name}, {scores['split']}: {figures}")
    for name, rows in results.get("pairs", {}).items():
        of_rows = ", ".join(f"{row} {scores['ap']:.2f}" for row, scores in rows.items())
        lines.append(f"{name}, average precision: {of_rows} (share of positives {rows['student']['prior']:.2f})")
    for name, of in results.get("translations", {}).items():
        lines.append(
            f"{name}: {of['source_to_translation']:.1f} % of {of['pairs']} held-out sources find their translation, "
            f"{of['translation_to_source']:.1f} % the other way"
        )
    if "spearman" in results.get("agreement", {}):
        texts = results["agreement"].get("texts")  # results from before they had it have none
        few = "; so few say little" if texts and texts < agreement.FEWEST_FOR_OVERLAP else ""
        on = f"{texts:,} held-out texts" if texts else "held-out text"
        lines.append(
            f"agreement with the {other} on {on}: Spearman of pair cosines {results['agreement']['spearman']:.2f}{few}"
        )
    return lines


def _beside(teacher: float | None, words: float | None, other: str) -> str:
    """What a figure of pairs of sentences stands beside, as far as it was measured."""
    of_teacher = f" of the {other}'s {teacher:.2f}" if teacher else ""
    return of_teacher + ("" if words is None else f" (words alone: {words:.2f})")


def _of_collection(results: dict[str, Any], name: str, other: str) -> str:
    """nDCG@10 in a collection, the student's first and beside it whatever else has searched there; empty where it was not measured."""
    by = {
        "retrieval": "the student's",
        "teacher_retrieval": f"the {other}'s",
        "asymmetric_retrieval": f"the student's in the {other}'s index",
        "retrieval_rescored": "ranked anew by its module",
        "bm25_retrieval": "BM25's",
    }
    scores = {key: results.get(key, {}).get(name, {}).get("ndcg@10") for key in by}
    if scores["retrieval"] is None:
        return ""
    return f"{name}{searched_by(results)}, nDCG@10: " + ", ".join(
        f"{by[key]} {score:.4f}" for key, score in scores.items() if score is not None
    )
