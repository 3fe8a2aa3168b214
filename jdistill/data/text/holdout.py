"""Holding out: evaluation sentences leave the training text, and a fixed part of the rest is kept to measure on."""

from __future__ import annotations

import hashlib
import unicodedata

QUOTES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "`": "'"})
WORD_ENDS = "+#"  # C++ and C# are not C
PICTURE_FORMS = "\ufe00\ufe0f"  # the first and the last of the marks that choose how a picture is drawn


def comparable(text: str) -> str:
    """A text as it is compared: NFKC, casefolded, plain quotes, no white space, no punctuation at the ends.

    Without white space because evaluation sets are often tokenised (`the dogs , the cat 's bed , do n't .`). Pictures and other symbols at
    the ends go with the punctuation; the marks of letters (vowels of Hindi) and signs of currencies stay, and at the end + and #. What is
    nothing but punctuation stays as it is.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    plain = "".join(text.translate(QUOTES).casefold().split()).replace("''", '"')
    start, stop = 0, len(plain)
    while start < stop and not _tells_apart(plain[start]):
        start += 1
    while start < stop and not (_tells_apart(plain[stop - 1]) or plain[stop - 1] in WORD_ENDS):
        stop -= 1
    return plain[start:stop] or plain


def _tells_apart(char: str) -> bool:
    """Whether texts differ that differ in a character at an end: a letter, a digit, a mark of one, the sign of a currency."""
    if char.isalnum():
        return True
    category = unicodedata.category(char)
    return category == "Sc" or (category[0] == "M" and not PICTURE_FORMS[0] <= char <= PICTURE_FORMS[1])


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
