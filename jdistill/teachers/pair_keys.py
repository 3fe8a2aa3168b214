"""Pairs of texts as the texts that an answer cache keeps answers of, and back."""

from __future__ import annotations

from collections.abc import Sequence

SEPARATOR = "\x1f"  # between the two texts of a pair


def pair_keys(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Pairs of texts, one from each list, as the texts that a cache keeps answers of."""
    # A first text that held the separator would be answered as another pair.
    return [a.replace(SEPARATOR, " ") + SEPARATOR + b for a, b in zip(first, second, strict=True)]


def pairs_of_keys(keys: Sequence[str]) -> tuple[list[str], list[str]]:
    """The first and the second text of each pair; the inverse of pair_keys."""
    pairs = [key.split(SEPARATOR, 1) for key in keys]
    return [first for first, _ in pairs], [second for _, second in pairs]
