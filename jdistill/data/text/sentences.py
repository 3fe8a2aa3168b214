"""Documents cut into sentences, by spaCy's rules for the ends of sentences in most scripts; no model is needed."""

from __future__ import annotations

from collections.abc import Sequence

from jdistill.core.errors import UserError

SPACY_CHARACTERS = 1_000_000  # characters at once: what spaCy takes


def split_sentences(documents: Sequence[str]) -> list[str]:
    """The distinct sentences of the documents, in their order. Raises UserError where spaCy is not installed."""
    try:
        import spacy
    except ImportError:
        raise UserError(
            "--config.split_sentences=True needs the sentences extra: pip install -e '.[sentences]'"
        ) from None
    rules = spacy.blank("xx")
    rules.add_pipe("sentencizer")
    pieces = (text[i : i + SPACY_CHARACTERS] for text in documents for i in range(0, len(text), SPACY_CHARACTERS))
    sentences = dict.fromkeys(sentence.text.strip() for document in rules.pipe(pieces) for sentence in document.sents)
    sentences.pop("", None)
    return list(sentences)
