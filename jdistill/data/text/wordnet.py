"""WordNet, as its database files have it: synonyms of a word, and its meanings as texts of every field.

wordnet or wordnet:FOLDER is a text source: some 117,000 meanings, each its words and what they mean. Such text holds words that a
collection's own lacks (docs/results/search.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from jdistill.core.errors import UserError

PARTS = ("noun", "verb", "adj", "adv")


def find_wordnet(folder: str, key: str) -> Path:
    """The folder of WordNet's database files: the one given, or where WordNet, Debian's wordnet-base and NLTK put it.

    key: the config key that asks for it, for messages. Raises UserError where there is none.
    """
    home = os.environ.get("WNHOME", "")
    nltk = [Path(root) / "corpora" / "wordnet" for root in os.environ.get("NLTK_DATA", "").split(os.pathsep) if root]
    usual = [
        Path(os.environ.get("WNSEARCHDIR") or "/usr/share/wordnet"),
        *([Path(home) / "dict"] if home else []),
        *nltk,
        Path.home() / "nltk_data" / "corpora" / "wordnet",
        Path("/usr/share/nltk_data/corpora/wordnet"),
    ]
    folders = [Path(folder).expanduser()] if folder else usual
    for candidate in folders:
        if all((candidate / f"{kind}.{part}").is_file() for kind in ("index", "data") for part in PARTS):
            return candidate
    raise UserError(
        f"--{key}: there is no WordNet (index.noun, data.noun and so on) in {', '.join(map(str, folders))}; install "
        "Debian's wordnet-base, download NLTK's wordnet, or give its folder as wordnet:FOLDER"
    )


def read_wordnet(folder: Path) -> dict[str, tuple[str, ...]]:
    """word -> the other words, names left out, of its most frequent sense, as the files order senses, in the part of speech in which most of
    its senses are attested. Format: wndb(5WN). Raises UserError for a damaged line."""
    best: dict[str, tuple[int, tuple[str, ...]]] = {}
    for part in PARTS:
        words_of: dict[str, list[str]] = {}
        try:
            for line in _lines(folder / f"data.{part}"):
                offset, *_ = fields = line.split(" ")
                words_of[offset] = _words(fields)
            for line in _lines(folder / f"index.{part}"):
                lemma, _, senses, pointers, *rest = line.split()
                attested, offsets = int(rest[int(pointers) + 1]), rest[int(pointers) + 2 :]
                if len(offsets) != int(senses):
                    raise ValueError(f"{senses} senses, {len(offsets)} offsets")
                others = tuple(word for word in words_of[offsets[0]] if word != lemma and word.islower())
                if others and "_" not in lemma and attested > best.get(lemma, (-1, ()))[0]:
                    best[lemma] = (attested, others)
        except (ValueError, KeyError, IndexError, OSError) as error:
            raise UserError(
                f"{folder}: data.{part} and index.{part} are damaged or do not belong together ({error})"
            ) from None
    return {lemma: others for lemma, (_, others) in best.items()}


def _lines(path: Path) -> list[str]:
    """The lines of a database file without its licence, which is indented."""
    return [line for line in path.read_text("latin-1").split("\n") if line and not line.startswith(" ")]


def numbered_glosses(rest: str, column: str, key: str) -> Iterator[tuple[int, str]]:
    """Each meaning as a text, "words: gloss", with its number, from 1; as Reader (data.text.schemes).

    Raises: UserError where there is no WordNet, and for a damaged line.
    """
    folder, number = find_wordnet(rest, key), count(1)
    for part in PARTS:
        for line in _lines(folder / f"data.{part}"):
            fields, _, gloss = line.partition(" | ")
            try:
                words = ", ".join(_words(fields.split(" ")))
            except (ValueError, IndexError):
                words = ""
            if not words or not gloss:
                raise UserError(f"--{key}: {folder}/data.{part} is damaged: {line[:60]!r} is no meaning with a gloss")
            yield next(number), f"{words}: {gloss.strip()}"


def _words(fields: list[str]) -> list[str]:
    """The words of a line's fields. Adjectives carry their place as in "galore(ip)"."""
    return [word.partition("(")[0].replace("_", " ") for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]]
