"""Augmented text (IBKD 4.3): words replaced by synonyms of an installed WordNet, a column of paraphrases, or spans of the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jdistill.core.errors import UserError
from jdistill.data.text.sources import file_identity, open_source, read_columns
from jdistill.data.text.spans import SPANS, draw_by, spans_asked, text_spans
from jdistill.data.text.wordnet import PARTS, find_wordnet, read_wordnet

FORMAT_OF_VARIANTS = "variants 2"  # another where the same texts would have other variants
SHARE = 0.3  # of the words that have a synonym
WORD = re.compile(r"[A-Za-z]{4,}")
# Function words that WordNet lists in some other, rare sense (over: a part of a cricket match).
FUNCTION_WORDS = frozenset(
    {"been", "does", "even", "have", "more", "most", "much", "only", "over", "such", "than", "that"}
)
FUNCTION_WORDS |= {"then", "there", "this", "unto", "very", "will"}


def check_augment(augment: str) -> None:
    """Raises UserError for an augment that is none of text_variants', and where its WordNet is absent; a column's source is not looked at."""
    kind = augment.partition(":")[0]
    if kind == "wordnet":
        _wordnet_of(augment)
    elif kind == SPANS:
        spans_asked(augment)
    elif not augment.startswith("column:"):
        raise UserError(
            f"--config.augment={augment!r}: it is wordnet, wordnet:FOLDER, column:NAME, spans, spans:K, or empty"
        )


def _wordnet_of(augment: str) -> Path:
    return find_wordnet(augment.removeprefix("wordnet").removeprefix(":"), "config.augment")


def text_variants(texts: Sequence[str], augment: str, source: str, column: str) -> Iterator[str]:
    """Further texts, for each of `texts` one at most, or several spans, which may equal another or one of `texts`.

    Args:
      texts: gone through once.
      augment: "wordnet" (an installed one), "wordnet:FOLDER" (one with index.noun, data.noun, …), or "column:NAME", the column of
        `source` that holds a paraphrase of `column`, or "spans" or "spans:K" (data.text.spans). The paraphrases of a column are in memory meanwhile.

    Raises: UserError for any other augment, and where there is no WordNet; at once, not with the first text.
    """
    check_augment(augment)
    if augment.startswith("column:"):
        paraphrases = dict(read_columns(source, column, augment.removeprefix("column:"), key="config.augment"))
        return filter(None, (paraphrases.get(text) for text in texts))
    if augment == "wordnet" or augment.startswith("wordnet:"):
        synonyms = read_wordnet(_wordnet_of(augment)).get
        return (substituted(text, lambda word: synonyms(word, ())) for text in texts)
    return text_spans(texts, spans_asked(augment))


def variants_identity(augment: str, source: str, column: str) -> list[Any] | None:
    """What text_variants goes by beside the texts, as JSON that is another where it may have changed; None: nothing tells. Arguments, and
    errors of an absent source or WordNet, as of text_variants."""
    identity: list[Any] | None = []
    if augment.startswith("column:"):
        identity = open_source(source, column, "config.text").identity
    elif augment == "wordnet" or augment.startswith("wordnet:"):
        folder = _wordnet_of(augment)
        identity = [file_identity(folder / f"{kind}.{part}") for kind in ("index", "data") for part in PARTS]
    return None if identity is None else [FORMAT_OF_VARIANTS, augment, column, identity]


def substituted(text: str, synonyms: Callable[[str], tuple[str, ...]]) -> str:
    """The text with about a third of its words that have synonyms (of the lower-case word) replaced, at least one; the text
    itself where no word has any. Which and by what depends on the text alone, so the teacher's answers stay good."""
    draw = draw_by(text)
    matches = [
        match
        for match in WORD.finditer(text)
        if match[0].lower() not in FUNCTION_WORDS
        and (match[0].islower() or match.start() == 0)  # elsewhere a capital makes a name
        and synonyms(match[0].lower())
    ]
    if not matches:
        return text
    chosen = draw.sample(matches, max(1, round(SHARE * len(matches))))
    for match in sorted(chosen, key=lambda match: -match.start()):
        other = draw.choice(synonyms(match[0].lower()))
        other = other[0].upper() + other[1:] if match[0][0].isupper() else other
        text = text[: match.start()] + other + text[match.end() :]
    return text
