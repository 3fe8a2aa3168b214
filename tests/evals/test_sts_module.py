"""STS by an interaction module: the pairs and the vectors that its logits are of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sts_setting import Angles, naive_pearson, naive_spearman, write_year

from jdistill.evals.sts import evaluate_sts


class Differences:
    """A module whose logits are the differences of the vectors' first numbers."""

    def of_vectors(self, query_vectors: np.ndarray, passage_vectors: np.ndarray, symmetric: bool) -> np.ndarray:
        assert symmetric
        return query_vectors[:, 0] - passage_vectors[:, 0]


def test_a_module_scores_the_same_pairs(tmp_path: Path) -> None:
    write_year(tmp_path, 13, "a", ["x 0\ty 50", "x 0\ty 30", "x 90\ty 90"], ["3", "4", "5"])
    write_year(tmp_path, 13, "b", ["x 60\ty 51", "x 0\ty 5"], ["0", "1"])

    class OfUnitLength(Angles):
        def encode(self, texts: Sequence[str], **_: Any) -> np.ndarray:
            vectors = super().encode(texts)
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    found = evaluate_sts(OfUnitLength(), tmp_path, Differences())["sts_by_module"]  # type: ignore[arg-type]
    cos = [[math.cos(math.radians(angle)) for angle in pair] for pair in ((0, 50), (0, 30), (90, 90), (60, 51), (0, 5))]
    logits = [left - right for left, right in cos]
    assert found["spearman"]["STS13"] == pytest.approx(naive_spearman(logits, [3, 4, 5, 0, 1]), abs=1e-6)
    assert found["pearson"]["STS13"] == pytest.approx(naive_pearson(logits, [3, 4, 5, 0, 1]), abs=1e-4)


def test_a_module_reads_by_the_prompts_it_learnt_from(tmp_path: Path) -> None:
    """Those of queries and documents, here a turn by 20 and by 30 degrees; cosines are of vectors without."""
    write_year(tmp_path, 13, "a", ["x 0\ty 50", "x 0\ty 30", "x 90\ty 90", "x 10\ty 45"], ["3", "4", "5", "1"])

    class Prompted(Angles):
        prompts = {"query": "20", "document": "30"}

        def prompt_for(self, role: str) -> str:
            return role

        def encode(self, texts: Sequence[str], prompt: str | None = None, **_: Any) -> np.ndarray:
            turn = float(self.prompts[prompt]) if prompt else 0
            vectors = super().encode([f"x {float(text.split()[1]) + turn}" for text in texts])
            return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    found = evaluate_sts(Prompted(), tmp_path, Differences())  # type: ignore[arg-type]
    pairs = ((0, 50), (0, 30), (90, 90), (10, 45))
    logits = [math.cos(math.radians(left + 20)) - math.cos(math.radians(right + 30)) for left, right in pairs]
    assert found["sts_by_module"]["pearson"]["STS13"] == pytest.approx(naive_pearson(logits, [3, 4, 5, 1]), abs=1e-4)
    cosines = [math.cos(math.radians(left - right)) for left, right in pairs]
    assert found["sts_pearson"]["STS13"] == pytest.approx(naive_pearson(cosines, [3, 4, 5, 1]), abs=1e-4)
