"""The digest of texts, arrays and settings, in which every part counts with its length; files and weights have fingerprints of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

# A part: a text, bytes, an array (its type and shape count too), or a list of texts.
DigestPart = str | bytes | np.ndarray | Sequence[str]


def digest(*parts: DigestPart) -> str:
    """A hash of these parts in their order.

    Each part, and each text of a list, is preceded by what it is and its length, so that ["a\\nb"] and ["a", "b"], or ("ab", "c") and
    ("a", "bc"), differ.

    Args:
      parts: texts, bytes, arrays (type and shape count too) and lists of texts.

    Returns: 32 hexadecimal digits.
    """
    hashed = hashlib.blake2b(digest_size=16)

    def add(kind: bytes, content: bytes | memoryview) -> None:
        hashed.update(kind + len(content).to_bytes(8, "little"))
        hashed.update(content)

    for part in parts:
        if isinstance(part, str):
            add(b"s", _encoded(part))
        elif isinstance(part, bytes):
            add(b"b", part)
        elif isinstance(part, np.ndarray):
            add(b"a", f"{part.dtype.str}{part.shape}".encode())
            add(b"v", np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)  # no copy of what may be gigabytes
        else:
            add(b"l", len(part).to_bytes(8, "little"))
            for text in part:
                add(b"s", _encoded(text))
    return hashed.hexdigest()


def _encoded(text: str) -> bytes:
    """Its bytes; of the name of a file, which need not be UTF-8, those that the file system has."""
    return text.encode(errors="surrogateescape")
