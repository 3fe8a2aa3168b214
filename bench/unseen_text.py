"""How much of the collections that search is measured on stands in what a student reads, and a text without that.

    python bench/unseen_text.py --text sentences.txt.gz passages.txt.gz … [--pairs pairs.jsonl] --collections RETRIEVAL_DEV RETRIEVAL \\
        --questions qnli_dev.jsonl [--out sentences-unseen.txt.gz]

A collection whose documents were read is no test of text that was never seen. A sentence of LEAST words and more is looked for in the
documents, word by word, whatever stands between them; a query among the whole texts. The pairs' queries and positives are texts too.
COLLECTIONS are folders in BEIR layout, and the questions' file is one as in search_table.py. --out: a file to write the lines of the
first text to of which no sentence stands in a document. Writes bench/results/unseen_text.json.
"""

from __future__ import annotations

import argparse
import gzip
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import command_line, joined, keep_rows, shown
from search_table import QNLI, write_questions

from jdistill.data.sets.collection import Collection
from jdistill.data.sets.collections import read_collections
from jdistill.data.sets.triplets import read_triplets
from jdistill.data.text.sources import read_texts

LEAST = 6  # words of a sentence that is looked for: shorter ones stand anywhere
END = re.compile(r"(?<=[.!?])\s+")  # of a sentence
Words = tuple[str, ...]


def words_of(text: str) -> Words:
    return tuple(re.findall(r"\w+", text.casefold()))


def sentences_of(texts: Sequence[str]) -> tuple[list[Words], list[int]]:
    """The sentences of all texts, and the row of the text that each is of."""
    cut = [(words_of(sentence), row) for row, text in enumerate(texts) for sentence in END.split(text)]
    return [words for words, _ in cut], [row for _, row in cut]


def covered(documents: Sequence[Words], lines: Sequence[Words]) -> tuple[list[np.ndarray], set[int]]:
    """Of each document which words stand in a line that the document holds whole, bool [words]; and the rows of those lines."""
    places: dict[Words, list[tuple[int, int]]] = defaultdict(
        list
    )  # LEAST words in a row -> the documents and where there
    for i, words in enumerate(documents):
        for at in range(len(words) - LEAST + 1):
            places[words[at : at + LEAST]].append((i, at))
    marks, found = [np.zeros(len(words), bool) for words in documents], set()
    for row, line in enumerate(lines):
        for i, at in places.get(line[:LEAST], ()):  # a line of fewer words is no key
            if documents[i][at : at + len(line)] == line:
                marks[i][at : at + len(line)] = True
                found.add(row)
    return marks, found


def collections_of(flags: argparse.Namespace) -> Iterator[Collection]:
    for folder in flags.collections:
        yield from read_collections(folder)
    if flags.questions:
        with tempfile.TemporaryDirectory() as scratch:
            write_questions(flags.questions, Path(scratch) / QNLI)
            yield from read_collections(scratch)


def row_of(collection: Collection, marks: Sequence[np.ndarray], texts: set[Words]) -> dict[str, Any]:
    """Of a collection how much of it the texts have. marks: of each document, as `covered` gives them."""
    words, queries = np.concatenate(marks), [words_of(query) for query in collection.queries.values()]
    return {
        "collection": collection.name,
        "queries": len(queries),
        "distinct": len(set(queries)),
        "that are a text": sum(query in texts for query in queries),
        "words": len(words),
        "percent of them in the texts": round(100 * float(words.mean()), 1),
        "documents": len(marks),
        "with a sentence of the texts": sum(bool(of_one.any()) for of_one in marks),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", required=True, help="files of sentences or passages")
    parser.add_argument("--pairs", default="", help="rows of query and positive; none: left out")
    parser.add_argument("--collections", nargs="+", required=True, help="folders in BEIR layout")
    parser.add_argument("--questions", type=Path, help="QNLI's dev set; none: left out")
    parser.add_argument("--out", type=Path, help="a .txt.gz; none: nothing is written")
    flags = parser.parse_args()
    first, *others = (read_texts(text).texts for text in flags.text)
    texts = [text for source in (first, *others) for text in source]
    if flags.pairs:
        pairs = read_triplets(flags.pairs, key="pairs", with_scores=False)
        texts += [*pairs.anchors, *pairs.positives]
    (sentences, row_of_text), whole = sentences_of(texts), set(map(words_of, texts))
    rows: list[dict[str, Any]] = []
    seen: set[int] = set()
    for collection in collections_of(flags):
        marks, found = covered([words_of(text) for text in collection.documents.values()], sentences)
        rows.append(row_of(collection, marks, whole))
        print(rows[-1], flush=True)
        seen |= {row_of_text[sentence] for sentence in found}
    print(f"{len(seen)} of {len(texts)} texts have a sentence that stands in a document")
    if flags.out:
        with gzip.open(flags.out, "wt", encoding="utf-8") as file:
            file.writelines(text + "\n" for row, text in enumerate(first) if row not in seen)
    about: dict[str, Any] = {"text": joined(map(shown, flags.text)), "pairs": shown(flags.pairs), "texts": len(texts)}
    about["texts with a sentence in a document"] = len(seen)
    keep_rows(
        "unseen_text",
        command_line(),
        rows,
        ("collection",),
        **about,
    )


if __name__ == "__main__":
    main()
