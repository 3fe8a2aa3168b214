"""How a student reads translations: as the teacher reads their sources, and near those rather than others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jdistill.core.mapped import slices_of
from jdistill.evals.agreement import COSINE_ROWS, agreement
from jdistill.retrieval.index import unit_rows

FIGURES = ("mean_cosine", "spearman")  # of agreement, of the translations with the teacher's sources


@dataclass(frozen=True)
class PairVectors:
    """P pairs of texts as vectors.

    Args:
      texts: sources and translations; several pairs may have the same of either.
      languages: of the translations; "" where nothing tells.
      sources: the student's, float32 [P, S].
      translations: the student's, float32 [P, S].
      teacher: the teacher's of the sources, float32 [P, T].
    """

    texts: list[tuple[str, str]]
    languages: list[str]
    sources: np.ndarray
    translations: np.ndarray
    teacher: np.ndarray


def translation_figures(pairs: PairVectors) -> dict[str, dict[str, Any]]:
    """Language -> figures of its pairs, "translation" where it has no name; a language is measured by itself.

    "pairs": how many. "mean_cosine", "spearman": of the student's vectors of the translations and the teacher's of their sources, as
    agreement has them. "source_to_translation", "translation_to_source": percent of texts whose nearest on the other side is their own, or
    another of their own where several are.
    Source: Reimers and Gurevych 2020, section 4.3 (translation matching accuracy).
    """
    figures: dict[str, dict[str, Any]] = {}
    number_of: dict[str, int] = {}  # no array of texts, each of which would be as wide as the longest
    numbers = np.array([[number_of.setdefault(text, len(number_of)) for text in of] for of in pairs.texts])
    for language in sorted(set(pairs.languages)):
        here = np.flatnonzero(np.array(pairs.languages) == language)
        sources, translations = pairs.sources[here], pairs.translations[here]
        agrees = agreement(translations, pairs.teacher[here])
        figures[language or "translation"] = {
            "pairs": len(here),
            **{name: agrees[name] for name in FIGURES if name in agrees},
            "source_to_translation": matching_accuracy(sources, translations, numbers[here]),
            "translation_to_source": matching_accuracy(translations, sources, numbers[here, ::-1]),
        }
    return figures


def mean_over_languages(figures: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Means of translation_figures: "translations", the Spearman of the languages that have one, absent where none has, and "matched", the
    matching accuracy both ways."""
    ranked = [of["spearman"] for of in figures.values() if "spearman" in of]
    matched = [(of["source_to_translation"] + of["translation_to_source"]) / 2 for of in figures.values()]
    of_ranks = {"translations": float(np.mean(ranked))} if ranked else {}
    return of_ranks | {"matched": float(np.mean(matched))}


def matching_accuracy(queries: np.ndarray, candidates: np.ndarray, numbers: np.ndarray) -> float:
    """Percent of queries whose nearest candidate by cosine is one that stands in a pair with them.

    Args:
      queries, candidates: float [P, D].
      numbers: of each pair's query and candidate, int64 [P, 2]: equal texts have the same.
    """
    paired = set(map(tuple, numbers.tolist()))
    u_PxD, v_PxD = unit_rows(queries), unit_rows(candidates)
    hits = 0
    for block in slices_of(len(u_PxD), COSINE_ROWS):
        nearest = np.argmax(u_PxD[block] @ v_PxD.T, axis=1)
        hits += sum(
            pair in paired for pair in zip(numbers[block, 0].tolist(), numbers[nearest, 1].tolist(), strict=True)
        )
    return 100 * hits / max(len(u_PxD), 1)
