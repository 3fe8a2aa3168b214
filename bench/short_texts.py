"""Texts as short as questions, for a student that only asks its teacher's index: questions, headings, and runs of words of longer text.

    python bench/short_texts.py --passages textbooks.txt.gz --questions questions.txt.gz --pairs textbooks.jsonl.gz \\
        --sentences sentences.txt.gz --out short.txt.gz

Of each passage four runs of words (data.text.spans), and SENTENCES_OF_PASSAGES of all their sentences; of the corpus of sentences a run of
words each of the first RUNS in a drawn order, and WHOLE short ones; all questions, and the pairs' queries. The same for the same files.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Sequence
from pathlib import Path

from jdistill.data.sets.triplets import read_triplets
from jdistill.data.text.sources import read_texts
from jdistill.data.text.spans import text_spans

SPANS, SENTENCES_OF_PASSAGES, RUNS, WHOLE = 4, 50_000, 70_000, 40_000
FEWEST, MOST, SHORT = (
    4,
    22,
    12,
)  # words of a passage's sentence, at least and at most, and of a short one of the corpus at most
END = re.compile(r"(?<=[.?!]) ")  # of a sentence


def short_texts(
    passages: Sequence[str], questions: Sequence[str], headings: Sequence[str], sentences: Sequence[str]
) -> list[str]:
    """The texts, once each and in a drawn order."""
    draw, corpus = random.Random(0), list(sentences)
    draw.shuffle(corpus)
    of_passages = [part for text in passages for part in END.split(text) if FEWEST <= len(part.split()) <= MOST]
    draw.shuffle(of_passages)
    texts = [*questions, *headings, *text_spans(passages, SPANS), *of_passages[:SENTENCES_OF_PASSAGES]]
    texts += text_spans(corpus[:RUNS], 1)
    texts += [text for text in corpus if len(text.split()) <= SHORT][:WHOLE]
    once = sorted({text.strip() for text in texts if text.strip()})
    draw.shuffle(once)
    return once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("passages", "questions", "pairs", "sentences"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--out", type=Path, required=True, help="a .txt.gz")
    flags = parser.parse_args()
    passages, questions, sentences = (
        list(read_texts(source).texts) for source in (flags.passages, flags.questions, flags.sentences)
    )
    texts = short_texts(
        passages, questions, read_triplets(flags.pairs, key="pairs", with_scores=False).anchors, sentences
    )
    with gzip.open(flags.out, "wt", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in texts)
    print(f"{len(texts)} texts, {sum(len(text.split()) for text in texts) / len(texts):.1f} words on average")


if __name__ == "__main__":
    main()
