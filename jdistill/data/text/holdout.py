"""Holding out: evaluation sentences leave the training text, and a fixed part of the rest is kept to measure on."""

from __future__ import annotations

import hashlib
import re
import unicodedata

QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "`": "'"})
ENDS = re.compile(r"^[\W_]+|[\W_]+$")


def comparable(text: str) -> str:
    """A text as it is compared: NFKC, casefolded, plain quotes, no white space, no punctuation at the ends.

    Without white space because evaluation sets are often tokenised (`the dogs , the cat 's bed , do n't .`). What is
    nothing but punctuation stays as it is.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    plain = "".join(text.translate(QUOTES).casefold().split()).replace("''", '"')
    return ENDS.sub("", plain) or plain


def split_held_out(texts: list[str], count: int, seed: int) -> tuple[list[str], list[str]]:
    """Splits distinct texts into (train, held_out), both in the given order; min(count, len(texts)) of them are held
    out.

    Those with the lowest hashes of (seed, text): order does not matter, and a corpus that grows never moves a training
    text to the held-out side. The other way goes only a text that gives its place to a new one.
    """
    if count <= 0:
        return list(texts), []
    hashes = [split_hash(text, seed) for text in texts]
    chosen = set(sorted(set(hashes))[:count])
    train = [text for text, digest in zip(texts, hashes, strict=True) if digest not in chosen]
    return train, [text for text, digest in zip(texts, hashes, strict=True) if digest in chosen]


def split_hash(text: str, seed: int) -> bytes:
    """What decides which texts are held out: 16 bytes, those of the lowest."""
    return hashlib.blake2b(text.encode(), digest_size=16, key=seed.to_bytes(8, "little", signed=True)).digest()
