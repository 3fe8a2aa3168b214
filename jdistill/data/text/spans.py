"""Runs of words out of longer texts, which read like what people type into a search: short, without a beginning or an end."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence

from jdistill.core.errors import UserError

SPANS = "spans"  # how --config.augment names them: one a text; spans:K is K
MEAN_WORDS = 7.5  # of a span that its text does not cut short, before what is drawn is cut to whole words, 7 on average; one word at least
EDGES = ".,;:!?()[]{}\"'"  # punctuation that a cut leaves at a span's ends
MOST_SPANS = 100  # of a text


def spans_asked(augment: str) -> int:
    """How many spans a text "spans" or "spans:K" asks for. Raises UserError for a K that is no number from 1 to MOST_SPANS."""
    _, colon, count = augment.partition(":")
    if not colon:
        return 1
    if not (count.isascii() and count.isdecimal() and len(count) < 4 and 1 <= int(count) <= MOST_SPANS):
        raise UserError(
            f"--config.augment={augment!r}: how many spans a text gives is a whole number from 1 to {MOST_SPANS}, as in spans:2"
        )
    return int(count)


def draw_by(text: str) -> random.Random:
    """Random numbers that depend on the text alone, so that a teacher's answers of what is drawn stay good."""
    return random.Random(hashlib.blake2b(text.encode(), digest_size=8).digest())


def text_spans(texts: Sequence[str], count: int) -> Iterator[str]:
    """`count` runs of words of each text, with punctuation stripped off their ends; those that hold nothing else are left out.

    The number of words is geometric, the first of them anywhere.
    """
    for text in texts:
        words = text.split() or [""]
        draw = draw_by(text)
        for _ in range(count):
            length = min(len(words), 1 + int(draw.expovariate(1 / (MEAN_WORDS - 1))))
            first = draw.randrange(len(words) - length + 1)
            if span := " ".join(words[first : first + length]).strip(EDGES):
                yield span
