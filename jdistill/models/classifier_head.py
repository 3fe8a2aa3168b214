"""The classifier on sentence vectors: one hidden layer of rectified units, of a text's vector or of what two texts' have in common.

BiLSTM-SRA, figure 1 (b) and (c). Shapes: n rows, C labels.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jdistill.core.types import Array


def features(vectors_nxTxD: Array) -> Array:
    """What the classifier reads.

    Args:
      vectors_nxTxD: of one or two texts a row, T.

    Returns: H of one text, [n, D], or [H, H', |H - H'|, H * H'] of two, [n, 4D].

    Source: BiLSTM-SRA, figure 1 (b) and (c).
    """
    if vectors_nxTxD.shape[1] == 1:
        return vectors_nxTxD[:, 0]
    a, b = vectors_nxTxD[:, 0], vectors_nxTxD[:, 1]
    return jnp.concatenate([a, b, jnp.abs(a - b), a * b], axis=-1)


def classifier_logits(head: dict[str, Any], vectors_nxTxD: Array) -> Array:
    """The logits of each row, float32 [n, C].

    Args:
      head: {"hidden", "out"}, each {"kernel" [in, out], "bias" [out]}, float32.
      vectors_nxTxD: of one or two texts a row, T.
    """
    hidden = jax.nn.relu(features(vectors_nxTxD) @ head["hidden"]["kernel"] + head["hidden"]["bias"])
    return hidden @ head["out"]["kernel"] + head["out"]["bias"]


def random_head(width: int, texts: int, hidden: int, labels: int, rng: np.random.Generator) -> dict[str, Any]:
    """A head for vectors of a width, one or two texts a row, at its start."""

    def layer(rows: int, columns: int) -> dict[str, np.ndarray]:
        kernel = rng.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32)
        return {"kernel": kernel, "bias": np.zeros(columns, np.float32)}

    return {"hidden": layer(width if texts == 1 else 4 * width, hidden), "out": layer(hidden, labels)}
