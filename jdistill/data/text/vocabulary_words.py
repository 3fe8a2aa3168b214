"""words:MODEL, a text source: words of a tokenizer's vocabulary, one alone or up to four drawn together.

What a teacher makes of a word that a text never uses, its student cannot know from that text. These name each word that is one piece to
the teacher about as often as any other, in texts as short as what people search for (docs/results/search.md). Without a meaning as a
whole, they teach a student its teacher's answers all the same, as random words are enough to copy a model from its answers (Krishna et
al. 2020, "Thieves on Sesame Street!").
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from jdistill.core.errors import UserError
from jdistill.data.text.locations import resolve

TOGETHER = (1, 2, 2, 3, 3, 4)  # words of a text, each number as likely
ROUNDS = 12  # how often a word is drawn
BEGINS_WORD = ("Ġ", "▁")  # pieces that begin a word, of byte-level and of sentencepiece vocabularies
GOES_ON = "##"  # pieces that go on within a word, of WordPiece ones
IDEOGRAPHS = "\u2e80"  # from here on one character may be a word


def numbered_words(rest: str, column: str, key: str) -> Iterator[tuple[int, str]]:
    """The texts of words:MODEL with their numbers, from 1; as Reader (data.text.schemes). The same for the same vocabulary.

    Args:
      rest: the model, a path, `pkg:` or hub id, of which tokenizer.json alone is read.

    Raises: UserError where there is none, or no word in it.
    """
    if not rest:
        raise UserError(f"--{key}=words: name the model whose vocabulary is meant, as in words:TEACHER")
    words = vocabulary_words(_tokenizer(rest, key))
    if not words:
        raise UserError(f"--{key}=words:{rest}: no piece of that vocabulary is a word by itself")
    return enumerate(_drawn(words), 1)


def vocabulary_words(tokenizer: Tokenizer) -> list[str]:
    """The words that are one piece each, sorted: of letters alone, and of two at least where an alphabet spells them."""
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    marked = any(piece.startswith(BEGINS_WORD) for piece in pieces)
    words = {
        tokenizer.decode([number]).strip()
        for piece, number in pieces.items()
        if (piece.startswith(BEGINS_WORD) if marked else not piece.startswith(GOES_ON))
    }
    return sorted(word for word in words if word.isalpha() and (len(word) > 1 or word >= IDEOGRAPHS))


def _drawn(words: Sequence[str]) -> Iterator[str]:
    """Texts of TOGETHER words until each has been drawn ROUNDS times; the last may have fewer."""
    draw = random.Random(0)
    order = (word for _ in range(ROUNDS) for word in draw.sample(words, len(words)))
    while together := list(islice(order, draw.choice(TOGETHER))):
        yield " ".join(together)


def _tokenizer(model: str, key: str) -> Tokenizer:
    """Of a model's folder, or of the folder within it where sentence-transformers once put it."""
    folder = resolve(model, key, ["tokenizer.json", "0_*/tokenizer.json"])
    for path in (folder / "tokenizer.json", *sorted(folder.glob("0_*/tokenizer.json"))):
        if path.is_file():
            return _read(path)
    raise UserError(f"--{key}=words:{model}: {folder} has no tokenizer.json, whose vocabulary is asked for")


def _read(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise UserError(f"{path} is damaged, or no tokenizer ({error})") from None
