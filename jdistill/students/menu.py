"""The menu of a budget: shapes of students, from which the largest that fits is taken, and what of their quality was measured."""

from __future__ import annotations

from dataclasses import dataclass

from ml_collections import ConfigDict

from jdistill.models.registry import ModelConfig

SHAPE_KEYS = ("layers", "embedding_size", "intermediate_size")  # of cfg.student, that a budget chooses


@dataclass(frozen=True)
class Measured:
    """What a shape's quality was measured on: the layers and the width of the start, cfg.student.vocabulary, and cfg.student.copy_layers, which
    of the start's layers a student of fewer began as."""

    layers: int
    width: int
    vocabulary: str
    copied: str


@dataclass(frozen=True)
class Shape:
    """A student beside its start, of whatever width that is.

    Args:
      layers: so many of the start's.
      embedding: width of the token embeddings, of the layers' width; 1: no compact table.
      inner: inner neurons of a layer's feed-forward, times the layers' width; 0: the start's own.
      retention: percent of its teacher's nDCG@10, as measured on one collection; None: not measured, nothing is promised.
      of: what it was measured on; another start, vocabulary or choice of layers is promised nothing. None: any.
    """

    layers: int
    embedding: float
    inner: int = 0
    retention: float | None = None
    of: Measured | None = None

    def student_keys(self, whole: ModelConfig) -> dict[str, int]:
        """SHAPE_KEYS of this shape. A start whose own token embeddings are narrower than its layers keeps their width.

        Args:
          whole: of the start.
        """
        width = whole.hidden_size
        compact = 0 if self.embedding == 1 else max(1, round(self.embedding * width))
        own = whole.embedding_size != width
        return dict(zip(SHAPE_KEYS, (self.layers, -1 if own else compact, self.inner * width), strict=True))

    def promise(self, whole: ModelConfig, student: ConfigDict) -> float | None:
        """Retention, where it was measured on a start like `whole` and with the vocabulary and layers of that cfg.student."""
        copied = student.copy_layers if self.of is None or self.layers < whole.num_layers else self.of.copied
        like = Measured(whole.num_layers, whole.hidden_size, str(student.vocabulary), copied)
        return self.retention if self.of in (None, like) else None


# With MiniLM's width of 384 compact tables of 256, 160, 128 and 64, and 1,536 (all), 768 and 384 inner neurons.
# Retention: of MiniLM's, after 300 steps of configs/search.py:wide with each shape, in float32 (bench/menu.py, docs/results/search.md).
MINILM = Measured(layers=6, width=384, vocabulary="24000", copied="last")
MENU = (
    Shape(12, 1 / 3),
    Shape(8, 1 / 3),
    Shape(6, 2 / 3),
    Shape(6, 2 / 3, 2),
    Shape(6, 2 / 3, 1),
    Shape(6, 1 / 3),
    Shape(6, 1 / 3, 2),
    Shape(6, 5 / 12, 1, 92.7, MINILM),  # of a teacher with six layers configs/search.py:wide
    Shape(6, 1 / 3, 1),  # configs/simtde.py:thin
    Shape(4, 2 / 3),
    Shape(4, 1 / 3),
    Shape(4, 1 / 3, 2, 90.0, MINILM),
    Shape(3, 1 / 3, 0, 87.2, MINILM),  # configs/simtde.py's own
    Shape(3, 1 / 3, 2),
    Shape(2, 1 / 3),
    Shape(2, 1 / 3, 2, 84.5, MINILM),
    Shape(2, 1 / 6, 2),
    Shape(2, 1 / 6, 1, 76.3, MINILM),
)


def shape_in_words(student: ConfigDict) -> str:
    """The SHAPE_KEYS of a cfg.student, for a reader: "3 layers, compact width 128, 768 inner neurons a layer"."""
    compact = {0: "no compact table", -1: "the start's own table"}.get(
        student.embedding_size, f"compact width {student.embedding_size}"
    )
    inner = f"{student.intermediate_size:,} inner neurons a layer" if student.intermediate_size else "whole layers"
    return f"{student.layers} layers, {compact}, {inner}"
