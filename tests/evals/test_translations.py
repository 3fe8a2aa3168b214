"""Figures of held-out translations: which text is found from which, and what a language too small to rank leaves out."""

from __future__ import annotations

import numpy as np
import pytest

from jdistill.evals.translations import PairVectors, mean_over_languages, translation_figures
from jdistill.export.card_text import figure_sections


def test_a_language_with_too_few_pairs_to_rank_is_left_out_of_the_mean() -> None:
    """Translations with the very vectors of their sources agree whole, however few pairs a second language has."""
    vectors, few = np.random.default_rng(0).normal(size=(32, 8)).astype(np.float32), ["de"] * 30 + ["fr"] * 2
    pairs = PairVectors([(f"text {i}", f"{i}. Text") for i in range(32)], few, vectors, vectors, vectors)
    figures = translation_figures(pairs)
    assert figures["de"]["spearman"] == pytest.approx(100) and "spearman" not in figures["fr"]
    assert mean_over_languages(figures) == {"translations": pytest.approx(100), "matched": 100}
    assert mean_over_languages({"fr": figures["fr"]}) == {"matched": 100}
    assert "| fr | 2 | 1.0000 | – | 100.0 | 100.0 |" in figure_sections({"translations": figures}, {})


def test_two_sources_of_one_translation_find_it_wherever_it_stands() -> None:
    """Either's nearest is the first of two equal vectors; a translation's nearest source may be any of its own."""
    river, stone = np.eye(2, 4, dtype=np.float32)
    sources = np.stack([river, 0.9 * river + 0.1 * stone, stone])
    texts = [("Thanks.", "Danke."), ("Thank you.", "Danke."), ("Stone.", "Stein.")]
    pairs = PairVectors(texts, [""] * 3, sources, np.stack([river, river, stone]), sources)
    (of,) = translation_figures(pairs).values()
    assert of["source_to_translation"] == of["translation_to_source"] == 100
    swapped = PairVectors(
        [*texts[:2], ("Stone.", "Fels.")], [""] * 3, sources, np.stack([river, stone, stone]), sources
    )
    (of,) = translation_figures(swapped).values()
    assert of["source_to_translation"] == pytest.approx(200 / 3) and of["translation_to_source"] == pytest.approx(
        200 / 3
    )
