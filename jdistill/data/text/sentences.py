"""Documents cut into sentences, by spaCy's rules for the ends of sentences in most scripts; no model is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType

from jdistill.core.errors import UserError

SPACY_CHARACTERS = 1_000_000  # characters at once: what spaCy takes


def sentences_of(documents: Iterable[str]) -> Iterator[str]:
    """The sentences of the documents one by one, stripped; some are empty, and some come again."""
    rules = _spacy().blank("xx")
    rules.add_pipe("sentencizer")
    pieces = (text[i : i + SPACY_CHARACTERS] for text in documents for i in range(0, len(text), SPACY_CHARACTERS))
    return (sentence.text.strip() for document in rules.pipe(pieces) for sentence in document.sents)


def spacy_version() -> str:
    """Of what splits. Raises UserError where spaCy is not installed."""
    return str(_spacy().__version__)


def _spacy() -> ModuleType:
    try:
        import spacy
    except ImportError:
        raise UserError(
            "--config.split_sentences=True needs the sentences extra: pip install -e '.[sentences]'"
        ) from None
    return spacy
