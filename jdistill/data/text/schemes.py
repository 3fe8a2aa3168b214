"""Text sources by scheme: SCHEME or SCHEME:REST, for texts that stand in no file, folder or dataset. One line each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from jdistill.core.errors import UserError
from jdistill.core.progress import log
from jdistill.core.remote import is_url
from jdistill.data.sets.beir import numbered_documents
from jdistill.data.text.python_docs import numbered_sentences
from jdistill.data.text.wordnet import numbered_glosses

# (rest, column, key) -> (number of the row, its text): rest is what follows the colon, column the config's text_column, and key the
# config key that names the source, for messages. What a reader gives is stripped, checked and made distinct by read_texts.
Reader = Callable[[str, str, str], Iterator[tuple[int, str | bytes | None]]]

SCHEMES: dict[str, Reader] = {
    "python-docs": numbered_sentences,
    "wordnet": numbered_glosses,
    "beir": numbered_documents,
}


def reader_of(source: str, key: str) -> Reader | None:
    """The reader of a source with a scheme; None for a path, a URL, a `pkg:` folder or a datasets id.

    Args:
      source: as the config names it.
      key: the config key that names it, for messages.

    Raises: UserError for an unknown scheme.
    """
    if is_url(source):
        return None
    scheme, colon, _ = source.partition(":")
    if scheme in SCHEMES:
        if not colon and os.path.lexists(source):
            log.warning(
                "WARNING: --%s=%s is the source of that name, not the path; write ./%s for that", key, source, source
            )
        return SCHEMES[scheme]
    if os.path.lexists(source):
        return None
    if colon and re.fullmatch(r"[a-z][a-z0-9+-]+", scheme) and scheme != "pkg":
        raise UserError(f"--{key}={source}: there is no text source {scheme}:; there are {', '.join(SCHEMES)} and pkg:")
    return None
