"""Vectors that a model of damaged weights gives: refused before they are measured."""

from __future__ import annotations

import numpy as np
import pytest

from jdistill.core.errors import UserError
from jdistill.evals.collapse import check_vectors


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(broken: float) -> None:
    vectors = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    vectors[[2, 5], 1] = broken
    with pytest.raises(UserError, match="^--model=x gives vectors with NaN or infinity for 2 of 8 texts: its weights"):
        check_vectors(vectors, "--model=x")
    with pytest.raises(UserError, match="for 1 of 1 texts"):
        check_vectors(vectors[2:3], "--model=x")
    check_vectors(np.delete(vectors, [2, 5], 0), "--model=x")
