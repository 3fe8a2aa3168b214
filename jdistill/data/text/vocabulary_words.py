"""words:MODEL, a text source: words of a tokenizer's vocabulary, one alone or up to four drawn together.

What a teacher makes of a word that a text never uses, its student cannot know from that text. These name each word that is one piece to
the teacher about as often as any other, in texts as short as what people search for (docs/results/search.md). Without a meaning as a
whole, they teach a student its teacher's answers all the same, as random words are enough to copy a model from its answers (Krishna et
al. 2020, "Thieves on Sesame Street!").
"""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenizers import Tokenizer

from jdistill.core.errors import UserError
from jdistill.core.fetched import local_copy
from jdistill.core.remote import is_url
from jdistill.data.text.locations import resolve

TOGETHER = (1, 2, 2, 3, 3, 4)  # words of a text, each number as likely
ROUNDS = 12  # how often a word is drawn
BEGINS_WORD = ("Ġ", "▁")  # pieces that begin a word, of byte-level and of sentencepiece vocabularies
# How Unicode's names of characters begin that are written without spaces, so that no piece of theirs is marked as a word's beginning.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
IDEOGRAPHS = "\u2e80"  # from here on one character may be a word
FILE = "tokenizer.json"


def numbered_words(rest: str, column: str, key: str) -> Iterator[tuple[int, str]]:
    """The texts of words:MODEL with their numbers, from 1; as Reader (data.text.schemes). The same for the same vocabulary.

    Args:
      rest: the model, a path, URL, `pkg:` or hub id, of which tokenizer.json alone is read.

    Raises: UserError where there is none, or no word in it.
    """
    if not rest:
        raise UserError(f"--{key}=words: name the model whose vocabulary is meant, as in words:TEACHER")
    words = vocabulary_words(_tokenizer(rest, key))
    if not words:
        raise UserError(f"--{key}=words:{rest}: no piece of that vocabulary is a word by itself")
    return enumerate(_drawn(words), 1)


def vocabulary_words(tokenizer: Tokenizer) -> list[str]:
    """The words that are one piece each, sorted: of letters and their marks alone, and of two at least where an alphabet spells them."""
    model = json.loads(tokenizer.to_str())["model"]
    ending, inside = model.get("end_of_word_suffix"), model.get("continuing_subword_prefix")
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    marked = model["type"] != "WordPiece" and any(piece.startswith(BEGINS_WORD) for piece in pieces)
    words = set[str]()
    for piece, number in pieces.items():
        if ending:
            whole, word = piece.endswith(ending), piece.removesuffix(ending)
        else:
            word = tokenizer.decode([number]).strip()
            whole = (
                piece.startswith(BEGINS_WORD) or _is_unspaced(word)
                if marked
                else not (inside and piece.startswith(inside))
            )
        if whole and _is_word(word):
            words.add(word)
    return sorted(words)


def _is_word(text: str) -> bool:
    kinds = {unicodedata.category(character)[0] for character in text}
    return "L" in kinds and kinds <= {"L", "M"} and (len(text) > 1 or text >= IDEOGRAPHS)


def _is_unspaced(text: str) -> bool:
    return all(unicodedata.name(character, "").startswith(UNSPACED) for character in text)


def _drawn(words: Sequence[str]) -> Iterator[str]:
    """Texts of TOGETHER words until each has been drawn ROUNDS times, the last perhaps of fewer; a word stands alone in one text at most."""
    draw, alone = random.Random(0), set[str]()
    order = (word for _ in range(ROUNDS) for word in draw.sample(words, len(words)))
    while together := list(islice(order, draw.choice(TOGETHER))):
        if len(together) > 1 or together[0] not in alone:
            yield " ".join(together)
        if len(together) == 1:
            alone.add(together[0])


def _tokenizer(model: str, key: str) -> Tokenizer:
    """Of a model's folder, of the folder within it where sentence-transformers once put it, or of the file itself."""
    place = local_copy(model, key, (FILE, "0_")) if is_url(model) else resolve(model, key, [FILE, f"0_*/{FILE}"])
    for path in (place, place / FILE, *sorted(place.glob(f"0_*/{FILE}"))):
        if path.name == FILE and path.is_file():
            return _read(path)
    raise UserError(
        f"--{key}=words:{model}: {place} has no {FILE}, whose vocabulary is asked for; AutoTokenizer.from_pretrained(FOLDER)"
        ".save_pretrained(FOLDER) writes one, where transformers reads the tokenizer that is there"
    )


def _read(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except BaseException as error:  # whatever it is: tokenizers checks little, and its Rust panics
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise UserError(f"{path} is damaged, or no tokenizer ({error})") from None
